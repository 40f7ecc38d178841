package stackdump

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/bringupd/bringupd/internal/textutil"
)

// Stack is the call stack of a thread.
type Stack struct {
	Source  string  `json:"by,omitempty"`     // source of the stack: py-spy or gdb; empty if there is none
	Frames  []Frame `json:"frames,omitempty"` // innermost first
	Problem string  `json:"problem,omitempty"`
}

// Frame is a function of a stack, with its current line.
type Frame struct {
	Func string `json:"func"`
	File string `json:"file,omitempty"` // source file; empty if unknown
	Line int    `json:"line,omitempty"`
	// library or program that contains a function without a source file
	Library string `json:"library,omitempty"`
}

const maxFrames = 60

// userLocation returns the innermost line of the user's program, that is, outside libraries, such as
// train.py:210, and the outermost function called there that is not just a wrapper. Both may be empty.
func (s *Stack) userLocation() (function, line string) {
	if s == nil || len(s.Frames) == 0 {
		return "", ""
	}
	// Without a line of the user's program, use the outermost function of the whole stack.
	within := s.Frames
	if user := slices.IndexFunc(s.Frames, Frame.isUserCode); user >= 0 {
		within, line = s.Frames[:user], s.Frames[user].sourceLine()
	}
	for _, frame := range slices.Backward(within) {
		if !slices.Contains(wrappers, frame.methodName()) && !slices.Contains(starters, frame.methodName()) {
			return frame.Func, line
		}
	}
	return "", line
}

// wrappers are functions that only call a function that is passed to them.
var wrappers = []string{
	"wrapper", "_wrapper", "wrapped", "inner", "_inner", "decorator", "decorate_context", "_fn",
	"__call__", "_call_impl", "_wrapped_call_impl", "<lambda>", "<module>", "apply", "inner_wrapper",
	"func_wrapper", unknownFunction,
}

// unknownFunction is the name of a function whose name gdb does not know.
const unknownFunction = "??"

// starters are functions that start threads and programs.
var starters = []string{
	"_start", "__libc_start_main", "__libc_start_main_impl", "__libc_start_call_main", "start_thread",
	"clone", "clone3", "__clone3", "_bootstrap", "_bootstrap_inner", "_run_module_as_main",
	"_run_code", "run_path", "_call_with_frames_removed",
}

// libraryPath matches sources and binaries of libraries, as opposed to the user's program.
var libraryPath = textutil.CompileLazily(
	`/(site|dist)-packages/|/lib(64)?/python[0-9.]+/|^<frozen |^<__array_function__|` +
		`^/usr/(lib|lib64|include|src|share)/|^(\./)?(Python|Modules|Objects|Include|Parser)/|` +
		`^\.\.?/(sysdeps|nptl|csu|misc|io|socket|stdlib|stdio-common|posix|elf|libio|` +
		`signal|time|string|malloc)/`)

// isUserCode reports whether a function belongs to the user's program.
func (f Frame) isUserCode() bool {
	return f.File != "" && !libraryPath().MatchString(f.File) && !slices.Contains(starters, f.Func)
}

// methodName returns the function's name without its class, which py-spy puts before it.
func (f Frame) methodName() string { return f.Func[strings.LastIndexByte(f.Func, '.')+1:] }

func (f Frame) sourceLine() string {
	where := filepath.Base(f.File)
	if f.Line > 0 {
		where += ":" + strconv.Itoa(f.Line)
	}
	return where
}

// parsePySpy parses the output of py-spy dump --json, and returns the stack of one thread. If that
// is missing, it returns the stack of the main thread.
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
		return nil, errors.New("no Python threads were found")
	}
	// Select the thread.
	shown := threads[0]
	for _, t := range threads {
		if t.OSThread == thread || shown.OSThread != thread && t.ThreadName == "MainThread" {
			shown = t
		}
	}
	stack := &Stack{Source: stackByPySpy}
	for _, f := range shown.Frames[:min(len(shown.Frames), maxFrames)] {
		stack.Frames = append(stack.Frames, Frame{Func: f.Name, File: f.Filename, Line: f.Line})
	}
	return stack, nil
}

// Headings and frames in gdb's output.
var (
	gdbThread = textutil.CompileLazily(`^Thread .*\(?(?:LWP |process )(\d+)\)?`)
	gdbFrame  = textutil.CompileLazily(`^#\d+\s+(?:0x[0-9a-f]+ in )?(.+?) \((.*)\)(?: at (.+):(\d+)| from (.+))?$`)
)

// parseGDB parses gdb's output of "thread apply all bt", and returns the stack of one thread.
func parseGDB(text string, thread int) (*Stack, error) {
	stack := &Stack{Source: stackByGDB}
	isWanted := false
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if head := gdbThread().FindStringSubmatch(line); head != nil {
			isWanted = head[1] == strconv.Itoa(thread)
			continue
		}
		frame := gdbFrame().FindStringSubmatch(line)
		if frame == nil || !isWanted || len(stack.Frames) >= maxFrames {
			continue
		}
		number, _ := strconv.Atoi(frame[4])
		// arguments of C++ templates may be longer than the rest of the stack
		name, _, _ := strings.Cut(frame[1], "<")
		f := Frame{Func: plainName(name), File: frame[3], Line: number, Library: frame[5]}
		if !f.isUserCode() && !slices.Contains(starters, f.Func) {
			f.Func = strings.TrimPrefix(f.Func, "__") // internal names of the C library
		}
		stack.Frames = append(stack.Frames, f)
	}
	if len(stack.Frames) == 0 {
		return nil, errors.New("gdb printed no stack of the thread")
	}
	return stack, nil
}

// plainName returns the public name of an internal function of the C library.
func plainName(name string) string {
	if slices.Contains(starters, name) {
		return name
	}
	for _, prefix := range []string{"__GI___", "__GI_", "__libc_"} {
		if plain, is := strings.CutPrefix(name, prefix); is {
			return strings.TrimPrefix(plain, "libc_")
		}
	}
	return name
}
