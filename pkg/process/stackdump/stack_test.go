package stackdump

import (
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// framesOf parses frames, the innermost first, of the form FUNCTION, FUNCTION FILE:LINE or FUNCTION @LIBRARY.
func framesOf(frames ...string) (all []Frame) {
	for _, text := range frames {
		name, place, _ := strings.Cut(text, " ")
		file, number, _ := strings.Cut(place, ":")
		line, _ := strconv.Atoi(number)
		frame := Frame{Func: name, File: file, Line: line}
		if library, is := strings.CutPrefix(place, "@"); is {
			frame = Frame{Func: name, Library: library}
		}
		all = append(all, frame)
	}
	return all
}

func TestPlace(t *testing.T) {
	const site = "/v/lib/python3.11/site-packages/"
	const threads = "/usr/lib/python3.11/threading.py:"
	for _, tc := range []struct {
		name   string
		frames []Frame
		want   string
	}{
		{"none", nil, "@"},
		{"the user's own line", framesOf("load /home/me/data.py:88"), "@data.py:88"},
		{"what it has called, behind a wrapper", framesOf("wait "+site+"torch/x.py:3",
			"all_reduce "+site+"torch/distributed/distributed_c10d.py:2501",
			"wrapper "+site+"torch/distributed/c10d_logger.py:81", "main /home/me/train.py:210",
			"<module> /home/me/train.py:300"), "all_reduce@train.py:210"},
		{"the standard library", framesOf("wait "+threads+"327", "join "+threads+"1112", "main app.py:4"),
			"join@app.py:4"},
		{"a thread of a library's own", framesOf("wait "+threads+"327", "run "+site+"x.py:1",
			"Thread._bootstrap_inner "+threads+"1045", "_bootstrap "+threads+"1002"), "run@"},
		{"a program in C", framesOf("clock_nanosleep ../sysdeps/unix/sysv/linux/clock_nanosleep.c:78",
			"sleep ../sysdeps/posix/sleep.c:55", "step /home/me/app.c:12", "main /home/me/app.c:20",
			"__libc_start_call_main ../sysdeps/nptl/libc_start_call_main.h:58", "_start"), "sleep@app.c:12"},
		{"a program in C without debug information", framesOf("read @/lib/libc.so.6", "take", "main", "_start"),
			"main@"},
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
  {"pid": 7, "thread_name": "MainThread", "os_thread_id": 7, "frames": [
    {"name": "load", "filename": "/t.py", "line": 3}, {"name": "<module>", "filename": "/t.py", "line": 6}]}
]`
	for _, tc := range []struct {
		name, text string
		thread     int
		want       []Frame // nil: an error
	}{
		{"the first thread", text, 7, framesOf("load /t.py:3", "<module> /t.py:6")},
		{"another", text, 8, framesOf("fetch /d.py:5")},
		{"one that does not run Python", text, 9, framesOf("load /t.py:3", "<module> /t.py:6")},
		{"no threads", "[]", 7, nil},
		{"cut off", text[:90], 7, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := parsePySpy([]byte(tc.text), tc.thread)
			if (err != nil) != (tc.want == nil) || err == nil && cmp.Diff(tc.want, got.Frames) != "" {
				t.Errorf("it is %+v, %v", got, err)
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
#0  0x00007f436db162ad in __GI___libc_read (fd=3, nbytes=1) at ../sysdeps/unix/sysv/linux/read.c:26
#1  take (from=3) at app.c:5
#2  0x0000559029a92081 in main () at app.c:9

Thread 3 (LWP 10):
#0  0x00007f436db1 in __sleep (seconds=0) at ../sysdeps/posix/sleep.c:55
#1  main () at app.c:9
#2  0x00007f436db2 in __libc_start_main () from /lib/libc.so.6
[Inferior 1 (process 7) detached]
`
	const libpthread = "/lib/x86_64-linux-gnu/libpthread.so.0"
	for _, tc := range []struct {
		name   string
		thread int
		want   []Frame // nil: an error
	}{
		{"the first thread", 7, framesOf("read ../sysdeps/unix/sysv/linux/read.c:26", "take app.c:5", "main app.c:9")},
		{"another", 8, framesOf("pthread_cond_wait @"+libpthread, "std::queue /home/me/queue.cc:9")},
		{"one by the C library's names", 10,
			framesOf("sleep ../sysdeps/posix/sleep.c:55", "main app.c:9", "__libc_start_main @/lib/libc.so.6")},
		{"none", 9, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := parseGDB(text, tc.thread)
			if (err == nil) != (tc.want != nil) || err == nil && cmp.Diff(tc.want, got.Frames) != "" {
				t.Errorf("it is %+v, %v", got, err)
			}
		})
	}
}
