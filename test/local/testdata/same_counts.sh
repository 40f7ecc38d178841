#!/bin/sh
# same_counts.sh FILE CLIENTS AGAIN: checks that CLIENTS lines of a file have as many answers as
# requests, and at least AGAIN requests together that were sent again.
sed -n 's/.*[: ]\([0-9]*\) requests, \([0-9]*\) answers, \([0-9]*\) sent again$/\1 \2 \3/p; s/^\([0-9]*\) requests, \([0-9]*\) answers, \([0-9]*\) sent again$/\1 \2 \3/p' "$1" |
    awk -v clients="$2" -v again="$3" '
        $1 != $2 || $1 < 32 { wrong = 1 } { n++; repeated += $3 }
        END { exit wrong || n != clients || repeated < again }' && exit
cat "$1"
exit 1
