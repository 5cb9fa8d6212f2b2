# CPU only: docker build -t ddpg .
#   docker run --rm -v "$PWD/runs:/data/runs" ddpg train Pendulum-v1
FROM python:3.12-slim

# The tree without its history, so the version is said here: --build-arg VERSION=1.2.3
ARG VERSION=0.1.0.dev0
COPY . /source
RUN SETUPTOOLS_SCM_PRETEND_VERSION_FOR_DDPG_PATHS=$VERSION pip install --no-cache-dir '/source[video]' \
    && rm -rf /source \
    && useradd --create-home --uid 1000 ddpg \
    && install -d -o ddpg /data /data/runs

USER ddpg
WORKDIR /data
ENTRYPOINT ["ddpg"]
CMD ["--help"]
