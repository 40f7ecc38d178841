package stackdump

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPlace(t *testing.T) {
	const site = "/v/lib/python3.11/site-packages/"
	for _, tc := range []struct {
		name   string
		frames []Frame // the innermost first
		want   string
	}{
		{"none", nil, "@"},
		{"the user's own line", []Frame{{Func: "load", File: "/home/me/data.py", Line: 88}}, "@data.py:88"},
		{"what it has called, behind a wrapper", []Frame{
			{Func: "wait", File: site + "torch/x.py", Line: 3}, {Func: "all_reduce", File: site + "torch/distributed/distributed_c10d.py", Line: 2501},
			{Func: "wrapper", File: site + "torch/distributed/c10d_logger.py", Line: 81}, {Func: "main", File: "/home/me/train.py", Line: 210},
			{Func: "<module>", File: "/home/me/train.py", Line: 300}}, "all_reduce@train.py:210"},
		{"the standard library", []Frame{{Func: "wait", File: "/usr/lib/python3.11/threading.py", Line: 327}, {Func: "join", File: "/usr/lib/python3.11/threading.py", Line: 1112},
			{Func: "main", File: "app.py", Line: 4}}, "join@app.py:4"},
		{"a thread of a library's own", []Frame{{Func: "wait", File: "/usr/lib/python3.11/threading.py", Line: 327}, {Func: "run", File: site + "x.py", Line: 1},
			{Func: "Thread._bootstrap_inner", File: "/usr/lib/python3.11/threading.py", Line: 1045}, {Func: "_bootstrap", File: "/usr/lib/python3.11/threading.py", Line: 1002}}, "run@"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if function, line := (&Stack{Frames: tc.frames}).userLocation(); function+"@"+line != tc.want {
				t.Errorf("it is %s@%s, want %s", function, line, tc.want)
			}
		})
	}
}

func TestParsePySpy(t *testing.T) {
	const text = `[
  {"pid": 7, "thread_name": "loader", "os_thread_id": 8, "frames": [{"name": "fetch", "filename": "/d.py", "line": 5}]},
  {"pid": 7, "thread_name": "MainThread", "os_thread_id": 7, "frames": [{"name": "load", "filename": "/t.py", "line": 3}, {"name": "<module>", "filename": "/t.py", "line": 6}]}
]`
	for _, tc := range []struct {
		name, text string
		thread     int
		want       []Frame
		bad        bool
	}{
		{"the first thread", text, 7, []Frame{{Func: "load", File: "/t.py", Line: 3}, {Func: "<module>", File: "/t.py", Line: 6}}, false},
		{"another", text, 8, []Frame{{Func: "fetch", File: "/d.py", Line: 5}}, false},
		{"one that does not run Python", text, 9, []Frame{{Func: "load", File: "/t.py", Line: 3}, {Func: "<module>", File: "/t.py", Line: 6}}, false},
		{"no threads", "[]", 7, nil, true},
		{"cut off", text[:90], 7, nil, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := parsePySpy([]byte(tc.text), tc.thread)
			if (err != nil) != tc.bad {
				t.Fatalf("error %v, want one: %t", err, tc.bad)
			}
			if err == nil && cmp.Diff(tc.want, got.Frames) != "" {
				t.Errorf("it is %+v", got)
			}
		})
	}
}
