# One image for brokers and the operator: `ottla broker run …`, `ottla operator run`.
# The wheels are built outside (scripts/build-wheels.sh), so that the image holds no compiler and its build needs no
# network; they have to fit the Python of the base image.
ARG BASE_IMAGE=python:3.11-slim

FROM ${BASE_IMAGE} AS install
COPY build/wheels /wheels
RUN python3 -m pip install --no-index --find-links /wheels --no-cache-dir --target /opt/ottla "ottla[operator]"

FROM ${BASE_IMAGE}
COPY --from=install /opt/ottla /opt/ottla
ENV PYTHONPATH=/opt/ottla PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 HOME=/tmp
USER 10001:10001
ENTRYPOINT ["python3", "-m", "ottla_broker.cli.main"]
CMD ["--help"]
