# One image for brokers and the operator: `ottla broker run …`, `ottla operator run`.
# The wheels are built outside (scripts/build-wheels.sh), so that the image holds no compiler and its build needs no
# network; they have to fit the Python of the base image. What others publish is a layer of its own, which stays the same
# from one of our releases to the next.
ARG BASE_IMAGE=python:3.11-slim

FROM ${BASE_IMAGE} AS install
COPY build/wheels/*.whl /wheels/
RUN python3 -m pip install --no-index --no-deps --no-cache-dir --target /opt/dependencies /wheels/*.whl
COPY build/wheels/ottla /ottla
RUN python3 -m pip install --no-index --no-deps --no-cache-dir --target /opt/ottla /ottla/*.whl

FROM ${BASE_IMAGE}
COPY --from=install /opt/dependencies /opt/dependencies
COPY --from=install /opt/ottla /opt/ottla
ENV PYTHONPATH=/opt/ottla:/opt/dependencies PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 HOME=/tmp
USER 10001:10001
ENTRYPOINT ["python3", "-m", "ottla.cli.main"]
CMD ["--help"]
