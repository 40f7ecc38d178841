#!/bin/sh
# Usage: bringupd --on-end='/path/to/mail.sh user@example.org' …
#        bringupd --on-end='/path/to/mail.sh user@example.org always' …
# Mails how a run has ended, with its result.json: a failure or, with "always", every end. It needs
# the program mail on the node of the head.

to=${1:?"give an address: mail.sh ADDRESS [always]"}
[ "$BRINGUPD_EXIT_CODE" != 0 ] || [ "${2-}" = always ] || exit 0
{
    echo "$BRINGUPD_REASON"
    echo "run directory: $BRINGUPD_RUN_DIR"
    cat # result.json
} | sed 's/^/  /' | # some versions of mail execute a line that begins with ~
    mail -s "bringupd: run $BRINGUPD_RUN ended with $BRINGUPD_EXIT_CODE ($BRINGUPD_VERDICT)${BRINGUPD_ERROR:+: $BRINGUPD_ERROR}" "$to"
