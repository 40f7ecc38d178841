package why

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/bringupd/bringupd/pkg/pattern"
)

// Stack is where a thread is in its program.
type Stack struct {
	By      string  `json:"by,omitempty"`     // what has read it: py-spy, gdb, kernel
	Frames  []Frame `json:"frames,omitempty"` // the innermost first
	Problem string  `json:"problem,omitempty"`
}

// Frame is one function of a stack, and how far it is.
type Frame struct {
	Func    string `json:"func"`
	File    string `json:"file,omitempty"` // its source; empty: not known
	Line    int    `json:"line,omitempty"`
	Library string `json:"library,omitempty"` // of a function without a source
}

// mostFrames is how many frames of a stack are kept.
const mostFrames = 60

// Place is what tells most of a stack: the line of the user's program, and what that has called.
type Place struct {
	In string // the function of a library; empty: it is in the user's own
	At string // train.py:210; empty: none of its functions is the user's
}

// String is "in all_reduce at train.py:210".
func (p Place) String() string {
	var words []string
	if p.In != "" {
		words = append(words, "in "+p.In)
	}
	if p.At != "" {
		words = append(words, "at "+p.At)
	}
	return strings.Join(words, " ")
}

// Place finds the innermost line that is the user's: of no library. What it has called is the outermost function within
// it that is no mere wrapper.
func (s *Stack) Place() Place {
	if s == nil || len(s.Frames) == 0 {
		return Place{}
	}
	user := slices.IndexFunc(s.Frames, Frame.isUsers)
	within := s.Frames
	var place Place
	if user >= 0 {
		within = s.Frames[:user]
		place.At = s.Frames[user].where()
	}
	for _, frame := range slices.Backward(within) {
		if !slices.Contains(wrappers, frame.method()) && !slices.Contains(starters, frame.method()) {
			place.In = frame.Func
			break
		}
	}
	return place
}

// wrappers are functions that only call what they are given.
var wrappers = []string{
	"wrapper", "_wrapper", "wrapped", "inner", "_inner", "decorator", "decorate_context", "_fn", "__call__", "_call_impl", "_wrapped_call_impl",
	"<lambda>", "<module>", "apply", "inner_wrapper", "func_wrapper", "??",
}

// starters are functions that begin threads and programs.
var starters = []string{"_start", "__libc_start_main", "__libc_start_main_impl", "__libc_start_call_main", "start_thread", "clone", "clone3", "__clone3",
	"_bootstrap", "_bootstrap_inner", "_run_module_as_main", "_run_code", "run_path", "_call_with_frames_removed"}

// aLibrary is where sources and binaries are that are not the user's own.
var aLibrary = pattern.New(`/(site|dist)-packages/|/lib(64)?/python[0-9.]+/|^<frozen |^<__array_function__|^/usr/(lib|lib64|include|src|share)/|` +
	`^(\./)?(Python|Modules|Objects|Include|Parser)/|^\.\.?/(sysdeps|nptl|csu|misc|io|socket|stdlib|stdio-common|posix|elf|libio|signal|time|string|malloc)/`)

// isUsers tells whether a function is of the user's program.
func (f Frame) isUsers() bool {
	return f.File != "" && !aLibrary().MatchString(f.File) && !slices.Contains(starters, f.Func)
}

// method is the function without the class, which py-spy puts before it.
func (f Frame) method() string { return f.Func[strings.LastIndexByte(f.Func, '.')+1:] }

// where is the line in short.
func (f Frame) where() string {
	where := filepath.Base(f.File)
	if f.Line > 0 {
		where += ":" + strconv.Itoa(f.Line)
	}
	return where
}

// parsePySpy reads what py-spy dump --json prints, of one thread.
func parsePySpy(text []byte, thread int) (*Stack, error) {
	var threads []struct {
		ThreadName string `json:"thread_name"`
		OSThread   int    `json:"os_thread_id"`
		Frames     []struct {
			Name     string `json:"name"`
			Filename string `json:"filename"`
			Line     int    `json:"line"`
		} `json:"frames"`
	}
	if err := json.Unmarshal(text, &threads); err != nil {
		return nil, err
	}
	if len(threads) == 0 {
		return nil, errors.New("there are no threads of Python")
	}
	shown := threads[0]
	for _, t := range threads {
		if t.OSThread == thread || shown.OSThread != thread && t.ThreadName == "MainThread" {
			shown = t
		}
	}
	stack := &Stack{By: pySpy}
	for _, f := range shown.Frames[:min(len(shown.Frames), mostFrames)] {
		stack.Frames = append(stack.Frames, Frame{Func: f.Name, File: f.Filename, Line: f.Line})
	}
	return stack, nil
}

var (
	gdbThread = pattern.New(`^Thread .*\(?(?:LWP |process )(\d+)\)?`)
	gdbFrame  = pattern.New(`^#\d+\s+(?:0x[0-9a-f]+ in )?(.+?) \((.*)\)(?: at (.+):(\d+)| from (.+))?$`)
)

// parseGDB reads what gdb prints for "thread apply all bt", of one thread.
func parseGDB(text string, thread int) (*Stack, error) {
	stack := &Stack{By: debugger}
	ours := false
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if head := gdbThread().FindStringSubmatch(line); head != nil {
			ours = head[1] == strconv.Itoa(thread)
			continue
		}
		frame := gdbFrame().FindStringSubmatch(line)
		if frame == nil || !ours || len(stack.Frames) >= mostFrames {
			continue
		}
		number, _ := strconv.Atoi(frame[4])
		name, _, _ := strings.Cut(frame[1], "<") // C++ templates may be longer than the rest of the stack
		f := Frame{Func: plainName(name), File: frame[3], Line: number, Library: frame[5]}
		if !f.isUsers() && !slices.Contains(starters, f.Func) {
			f.Func = strings.TrimPrefix(f.Func, "__") // the C library's own names
		}
		stack.Frames = append(stack.Frames, f)
	}
	if len(stack.Frames) == 0 {
		return nil, errors.New("there is no stack of the thread in what gdb printed")
	}
	return stack, nil
}

// plainName is a function of the C library by the name that programs call it by.
func plainName(name string) string {
	for _, prefix := range []string{"__GI___", "__GI_", "__libc_"} {
		if plain, is := strings.CutPrefix(name, prefix); is && plain != "start_main" && plain != "start_main_impl" && plain != "start_call_main" {
			return strings.TrimPrefix(plain, "libc_")
		}
	}
	return name
}

// parseKernel reads /proc/PID/stack.
func parseKernel(text string) *Stack {
	stack := &Stack{By: kernelStack}
	for line := range strings.Lines(text) {
		_, name, found := strings.Cut(strings.TrimSpace(line), "] ")
		if name, _, _ = strings.Cut(name, "+"); found && len(stack.Frames) < mostFrames {
			stack.Frames = append(stack.Frames, Frame{Func: name, Library: "the kernel"})
		}
	}
	return stack
}
