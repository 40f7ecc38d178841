#!/bin/sh
# Checks the program and its dependencies for known vulnerabilities. It exits with 77 if the
# database of vulnerabilities cannot be reached.
cd "$(dirname "$0")/.." || exit 1
out=$(go tool -modfile=tools/go.mod govulncheck ./... 2>&1)
code=$?
echo "$out"
case $out in
*"govulncheck: fetching vulnerabilities: "*)
    echo "NOT RUN: the database of vulnerabilities can't be reached"
    exit 77
    ;;
esac
exit $code
