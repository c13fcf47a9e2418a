# Podium's images. Targets: `podium` (operator, extender, agent, hooks, command line) and `fake-driver` (tests).
# BASE is any image with Python 3.11 or newer, venv and pip; BUILD_BASE any with gcc, libc headers and make, of the same
# Debian release (programs of BASE load the fake driver's libraries).
# docs/how-to/contribute.md: how to renew the digests.
ARG BASE=python:3.13-slim-trixie@sha256:9662417aace5ae7b8e2609cce472b72a8958e134ba372808abe9cc1a0c0125e6
ARG BUILD_BASE=gcc:14-trixie@sha256:468b5b959b5f4025724d8549f45550c6ad38a32474733cbf130f8f2c1bc80805

FROM ${BUILD_BASE} AS helper
COPY agent/helper /src
RUN make -C /src install OUT=/tmp/build DESTDIR=/out

FROM ${BUILD_BASE} AS driver
COPY agent/driver /src
RUN make -C /src install OUT=/tmp/build DESTDIR=/out

FROM ${BASE} AS fake-driver
COPY --from=driver /out/ /
ENTRYPOINT ["/opt/podium-fake-driver/install.sh"]

FROM ${BASE} AS python
RUN python3 -m venv /opt/podium
ENV PATH=/opt/podium/bin:/usr/local/bin:/usr/bin:/bin PYTHONUNBUFFERED=1 PIP_DISABLE_PIP_VERSION_CHECK=1

# build requirements of the wheel, pinned by hash like all others
FROM python AS wheel
COPY requirements-dev.lock /src/
RUN awk '/^[a-z]/ {keep = /^(hatchling|packaging|pathspec|pluggy|tomlkit|trove-classifiers)==/} keep' /src/requirements-dev.lock >/tmp/build.lock \
 && pip install --no-cache-dir --require-hashes -r /tmp/build.lock
COPY . /src/
RUN pip wheel --no-cache-dir --no-deps --no-build-isolation -w /tmp/wheels /src \
 && pip install --no-cache-dir --no-deps --no-index --prefix /out/opt/podium /tmp/wheels/*.whl

# the slow layer: it changes only with the lock file. The packages' own tests take a tenth of it.
FROM python AS dependencies
COPY requirements.lock /src/
RUN pip install --no-cache-dir --require-hashes -r /src/requirements.lock \
 && find /opt/podium -type d -name tests -prune -exec rm -r {} +

FROM dependencies AS podium
COPY --from=helper /out/ /
COPY --from=wheel /out/ /
USER 65532:65532
CMD ["podium", "--help"]
