#!/bin/sh
# Prints the version as a format spells it. The number is the constant in internal/version/version.go; a
# version that is not released also has its commit. NUMBER and COMMIT replace what is found.
#
#   version.sh           0.1.0-dev+0123456789ab, of the program and the tarballs
#   version.sh package   0.1.0~dev+git0123456789ab, of the .deb and the .rpm
#   version.sh wheel     0.1.0.dev0, because an index accepts no commit
#   version.sh number    0.1.0-dev, of the changelog
#
# A release, 0.1.0, is the same in all of them, and 0.1.0-rc1 is 0.1.0~rc1 and 0.1.0rc1.
set -eu
cd "$(dirname "$0")/.."
number=${NUMBER-$(sed -n 's/^const Number = "\(.*\)"$/\1/p' internal/version/version.go)}
commit=${COMMIT-$(git describe --always --exclude='*' --abbrev=12 --dirty=.dirty 2>/dev/null || :)}
case $number-$commit in
*-dev-?* | *.dirty) ;;
*) commit= ;;
esac
case ${1:-program} in
program) echo "$number${commit:+"+$commit"}" ;;
package) echo "$number${commit:+"+git$commit"}" | sed 's/-/~/' ;;
wheel) echo "$number" | sed 's/-dev$/.dev0/; s/-//' ;;
number) echo "$number" ;;
*) echo "cannot print a version for $1: known are program, package, wheel and number" >&2 && exit 2 ;;
esac
