package local

import (
	"strings"
	"testing"

	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// TestErrorInTheHeadline checks that the last words of a job, its result and its cause have the
// error of the program that has failed, without secrets, and not that of a program that has handled
// it.
func TestErrorInTheHeadline(t *testing.T) {
	const raise = `printf 'Traceback (most recent call last):\n  File "t.py", line 3, in f\n` +
		`ValueError: loss is NaN, password=hunter2\n' >&2; echo step 7; `
	// What torch's decorator record writes; the output of the rank itself is elsewhere.
	const report = `[ $RANK = 0 ] && exec sleep 300; printf '{"message": {"message": "ValueError: loss", ` +
		`"extraInfo": {"py_callstack": "Traceback (most recent call last):\\n  File \\"t.py\\", line 3, in f` +
		`\\n    f()\\nValueError: loss is NaN, password=hunter2\\n", "timestamp": "1790000000"}}}' ` +
		`>"${TORCHELASTIC_ERROR_FILE:-/dev/null}"; `
	const line = "ValueError: loss is NaN, password=…"
	for _, tc := range []struct {
		name, program string
		flags         []string
		says, want    string
		code          int
	}{
		{"driver", raise + "exit 1", nil, "the driver has ended: exit code 1: " + line, line, 1},
		{"handled by the driver", raise + "exit 3", nil, "the driver has ended: exit code 3 (took", "", 3},
		{"rank", "[ $RANK = 0 ] && exec sleep 300; " + raise + "exit 1",
			[]string{"--ranks-per-node=2", "--oversubscribe"}, ") failed: exit code 1: " + line, line, 1},
		{"rank with an error file", report + "exit 1",
			[]string{"--ranks-per-node=2", "--oversubscribe"}, ") failed: exit code 1: " + line, line, 1},
		{"rank with an error file and an error", strings.Replace(report, "NaN", "old", 1) + raise + "exit 1",
			[]string{"--ranks-per-node=2", "--oversubscribe"}, ") failed: exit code 1: " + line, line, 1},
		{"rank that has handled its error", report + "exit 3",
			[]string{"--ranks-per-node=2", "--oversubscribe"}, ") failed: exit code 3\n", "", 3},
		{"rank with an error file of the user", report + "exit 1",
			[]string{"--ranks-per-node=2", "--oversubscribe", "--env=TORCHELASTIC_ERROR_FILE="},
			") failed: exit code 1\n", "", 1},
		{"service", "sleep 300", []string{"--worker-cmd=" + raise + "exit 1"}, ": exit code 1: " + line,
			line, 77},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			j := startLocal(t, 1, tc.flags, tc.program)
			code := j.AwaitEnd(ceiling)
			var result record.Result
			isThere := j.Read(&result, signal.NameResult)
			says := strings.Contains(j.Said.String(), tc.says)
			if !isThere || code != tc.code || result.ErrorLine != tc.want || !says {
				t.Errorf("it ended with %d, and the error %q:\n%s", code, result.ErrorLine, &j.Said)
			}
			if result.Cause != nil && result.Cause.ErrorLine != tc.want {
				t.Errorf("the cause has the error %q", result.Cause.ErrorLine)
			}
		})
	}
}

// TestSilentErrorInTheVerdict verifies that a program that has printed an error and nothing since is
// reported, and named by the verdict of a timeout, unless it has gone on.
func TestSilentErrorInTheVerdict(t *testing.T) {
	const raise = `printf 'Traceback (most recent call last):\n  File "t.py", line 3, in f\n` +
		`ValueError: loss is NaN\n' >&2; `
	for _, tc := range []struct {
		name, goesOn, line string
		events             int
	}{
		{"silent", "", "ValueError: loss is NaN", 1},
		{"has gone on", "sleep 4; seq 10; ", "", 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			j := startLocal(t, 2, []string{"--ranks-per-node=2", "--oversubscribe", "--hang-timeout=5s"},
				"[ $RANK = 3 ] && { "+raise+tc.goesOn+"}; exec sleep 300")
			code := j.AwaitEnd(ceiling)
			var result record.Result
			if !j.Read(&result, signal.NameResult) || code != 124 || result.ErrorLine != tc.line ||
				len(result.Events) != tc.events ||
				strings.Contains(result.Reason, ": rank 3 (") != (tc.line != "") {
				t.Errorf("it ended with %d, and the result %+v:\n%s", code, result, &j.Said)
			}
			for _, event := range result.Events {
				if event.NodeIndex != 1 || event.Silence == nil || event.Silence.Child != "rank 3" {
					t.Errorf("the event %+v", event)
				}
			}
		})
	}
}
