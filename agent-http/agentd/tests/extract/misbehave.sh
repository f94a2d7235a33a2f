#!/bin/sh
# Behaves as a process of the extractor might, by the declared media type in $2.
# The process has no environment; exit code 7 says that it has one.
[ -z "${HOME+x}${CARGO_MANIFEST_DIR+x}" ] || exit 7
case $2 in
  application/pdf) while :; do :; done ;;
  text/html) exec head -c 30000000 /dev/zero ;;
  text/csv)
    echo "memory allocation of 2147483648 bytes failed" >&2
    kill -ABRT $$ ;;
  text/markdown)
    head -c 1000000 /dev/zero >&2
    kill -XCPU $$ ;;
  application/json) kill -SEGV $$ ;;
  text/plain) printf '{"version":1,"title":"","format":"plain","pages":null,"pageStarts":[],"needsOcr":[]}\n' ;;
  *) kill -KILL $$ ;;
esac
