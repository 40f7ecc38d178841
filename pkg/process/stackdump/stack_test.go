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
		{"a program in C", []Frame{{Func: "clock_nanosleep", File: "../sysdeps/unix/sysv/linux/clock_nanosleep.c", Line: 78},
			{Func: "sleep", File: "../sysdeps/posix/sleep.c", Line: 55}, {Func: "step", File: "/home/me/app.c", Line: 12}, {Func: "main", File: "/home/me/app.c", Line: 20},
			{Func: "__libc_start_call_main", File: "../sysdeps/nptl/libc_start_call_main.h", Line: 58}, {Func: "_start"}}, "sleep@app.c:12"},
		{"a program in C without debug information", []Frame{{Func: "read", Library: "/lib/libc.so.6"}, {Func: "take"}, {Func: "main"}, {Func: "_start"}}, "main@"},
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

func TestParseGDB(t *testing.T) {
	const text = `[New LWP 8]
[Thread debugging using libthread_db enabled]
0x00007f436db162ad in __GI___libc_read (fd=fd@entry=3, nbytes=nbytes@entry=1) at ../sysdeps/unix/sysv/linux/read.c:26
26	../sysdeps/unix/sysv/linux/read.c: No such file or directory.

Thread 2 (Thread 0x7f436e25a700 (LWP 8) "loader"):
#0  0x00007f436db1 in pthread_cond_wait () from /lib/x86_64-linux-gnu/libpthread.so.0
#1  0x0000559029a92081 in std::queue<int, std::deque<int> >::pop (this=0x0) at /home/me/queue.cc:9

Thread 1 (Thread 0x7f436e25ab80 (LWP 7) "app"):
#0  0x00007f436db162ad in __GI___libc_read (fd=fd@entry=3, nbytes=nbytes@entry=1) at ../sysdeps/unix/sysv/linux/read.c:26
#1  take (from=3) at app.c:5
#2  0x0000559029a92081 in main () at app.c:9

Thread 3 (LWP 10):
#0  0x00007f436db1 in __sleep (seconds=0) at ../sysdeps/posix/sleep.c:55
#1  main () at app.c:9
#2  0x00007f436db2 in __libc_start_main () from /lib/libc.so.6
[Inferior 1 (process 7) detached]
`
	for _, tc := range []struct {
		name   string
		thread int
		want   []Frame
	}{
		{"the first thread", 7, []Frame{{Func: "read", File: "../sysdeps/unix/sysv/linux/read.c", Line: 26}, {Func: "take", File: "app.c", Line: 5}, {Func: "main", File: "app.c", Line: 9}}},
		{"another", 8, []Frame{{Func: "pthread_cond_wait", Library: "/lib/x86_64-linux-gnu/libpthread.so.0"}, {Func: "std::queue", File: "/home/me/queue.cc", Line: 9}}},
		{"one by the C library's names", 10, []Frame{{Func: "sleep", File: "../sysdeps/posix/sleep.c", Line: 55}, {Func: "main", File: "app.c", Line: 9}, {Func: "__libc_start_main", Library: "/lib/libc.so.6"}}},
		{"none", 9, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := parseGDB(text, tc.thread)
			if (err == nil) != (tc.want != nil) {
				t.Fatalf("error %v", err)
			}
			if err == nil && cmp.Diff(tc.want, got.Frames) != "" {
				t.Errorf("(-want +got):\n%s", cmp.Diff(tc.want, got.Frames))
			}
		})
	}
}
