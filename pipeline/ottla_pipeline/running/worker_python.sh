#!/bin/sh
# The Python of Spark's processes: OTTLA_WORKER_PYTHON, without what Spark puts in front of its path. Its pyspark.zip and
# py4j zip have no bytecode, so that every process compiles them; and Python reads the directory of Spark's own jar.
# The installed packages are the same ones with bytecode (worker_python.py).
set -f
kept=
IFS=:
for folder in $PYTHONPATH; do
  case $folder in
    */python/lib/pyspark.zip | */python/lib/py4j-*-src.zip | */jars/spark-core_*.jar) ;;
    *) kept=${kept:+$kept:}$folder ;;
  esac
done
unset IFS
export PYTHONPATH="$kept"
exec "${OTTLA_WORKER_PYTHON:-python3}" "$@"
