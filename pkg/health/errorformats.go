package health

import (
	"slices"
	"strings"
	"unicode"

	"github.com/bringupd/bringupd/internal/textutil"
)

// The exit codes of some runtimes, as a shell shows them.
const (
	codeInterrupted = 128 + 2 // SIGINT
	codeAborted     = 128 + 6 // SIGABRT
	codePanic       = 101     // of Rust
	codeTSan        = 66      // of ThreadSanitizer
)

// errorFormats are the known formats. The first one that matches counts.
var errorFormats = []errorFormat{
	// Python
	{codes: []int{1, codeInterrupted, codeAborted}, find: findPython, mayGoOn: mayFollowPython},
	{codes: []int{1}, find: findPythonSyntax, mayGoOn: mayFollowPython},
	{codes: []int{2}, find: findArgparse},
	{codes: []int{1, 2}, find: findLine(`^\S*python\S*: (?:No module named|can't open file) .+`)},
	{codes: []int{1}, find: findLine(`^\s+traceback : (Signal .+)`), mayGoOn: goesOn}, // torchrun
	// Go
	{codes: []int{1, 2}, find: findGo, mayGoOn: goesOn},
	// Rust
	{codes: []int{codePanic, codeAborted}, find: findRust, mayGoOn: goesOn},
	// Java
	{codes: []int{1}, find: findJava, mayGoOn: goesOn},
	{
		codes: []int{codeAborted}, mayGoOn: goesOn,
		find: findLine(`^#\s+(SIG\w+ \(0x\w+\) at .*|.*OutOfMemory.*)`),
	},
	{
		codes: []int{1}, mayGoOn: goesOn,
		find: findLine(`^Error: (?:Could not find or load main class|Unable to access jarfile) .+`),
	},
	// C and C++
	{codes: []int{codeAborted}, find: findTerminate, mayGoOn: goesOn},
	{codes: []int{codeAborted}, find: findLine(`^.+: Assertion .+ failed\.?$`), mayGoOn: goesOn},
	{
		codes: []int{codeAborted}, mayGoOn: goesOn, // glibc
		find: findLine(`^(?:double free or corruption|free\(\): |malloc\(\): |realloc\(\): ` +
			`|corrupted (?:size|double-linked)|munmap_chunk\(\): |\*\*\* .+ detected \*\*\*` +
			`|Fatal glibc error).*`),
	},
	{find: findLine(`^==\d+== ?ERROR: (\w+Sanitizer: .+)`), mayGoOn: goesOn},
	{codes: []int{codeTSan}, find: findLine(`^SUMMARY: (ThreadSanitizer: .+)`), mayGoOn: goesOn},
	{find: findLine(`^\S+:\d+:\d+: runtime error: .+`)}, // UBSan
	{
		codes: []int{127},
		find:  findLine(`^\S+: (?:error while loading shared libraries|symbol lookup error): .+`),
	},
	{ // glog
		codes: []int{codeAborted}, mayGoOn: goesOn,
		find: findLine(`^F\d{4,8} [\d:.]+ .*?\] (.+)`),
	},
	// CUDA and NCCL
	{find: findLine(`^.*\b(?:CUDA error|GPUassert|Cuda failure|NCCL error|NCCL failure)\b.*`)},
	// MPI
	{find: findLine(`^(?:Abort\(\d+\)[^:]*: )?(Fatal error in \w+: .+)`), mayGoOn: goesOn},
	{find: findOpenMPI, mayGoOn: goesOn},
	{find: findLine(`^Abort\(\d+\) on node \d+ .*`), isOuter: true},
	{find: findLine(`^MPI_ABORT was invoked on rank \d+ .*`), mayGoOn: goesOn, isOuter: true},
	{
		mayGoOn: goesOn, isOuter: true,
		find: findLine(`^YOUR APPLICATION TERMINATED WITH THE EXIT STRING: (.+)`),
	},
	{find: findLine(`^\[\S+:\d+\] (Signal: .+)`), mayGoOn: goesOn},
	// Fortran, Julia, R and Node.js
	{
		mayGoOn: goesOn,
		find:    findLine(`^(?:Fortran runtime error: .+|forrtl: severe .+|ERROR STOP.*)`),
	},
	{
		codes: []int{1}, find: findLine(`^ERROR: .+`),
		mayGoOn: onlyIndented("Stacktrace:", "in expression starting at "),
	},
	{codes: []int{1}, find: findR, mayGoOn: goesOn},
	{codes: []int{1}, find: findNode, mayGoOn: goesOn},
	// the result of main in Rust, and exceptions without a traceback
	{codes: []int{1}, find: findLine(`^Error: .+`), mayGoOn: onlyIndented("Caused by:")},
	{codes: []int{1}, find: findException, mayGoOn: onlyIndented("Caused by:")},
	// shells
	{find: findLine(`^(?:\S*(?:sh|bash|\.sh|\.sbatch|slurm_script): )?(?:line )?\d*:? ?\S.*: ` +
		`(?:command not found|not found|unbound variable|parameter not set|Permission denied` +
		`|cannot execute.*|No such file or directory|Exec format error|Is a directory` +
		`|bad substitution)$`)},
	{codes: []int{2}, find: findLine(`^\S+: line \d+: syntax error .*`), mayGoOn: goesOn},
	{
		isOuter: true,
		find: findLine(`^(?:\S+: line \d+: +\d+ )((?:Killed|Segmentation fault|Aborted|Bus error` +
			`|Illegal instruction|Floating point exception)\b.*)`),
	},
	// Slurm
	{find: findLine(`^slurmstepd\S*: error: (Detected \d+ oom.?kill event.*|\*\*\* .*DUE TO .*` +
		`|execve\(\): .+)`)},
	// git, make, compilers, Perl, Go's log.Fatal, and programs that say so
	{codes: []int{2}, find: findLine(`^make(?:\[\d+\])?: \*\*\* .+`), isOuter: true},
	{codes: []int{128}, find: findLine(`^fatal: .+`)},
	{
		codes: []int{1, 2}, mayGoOn: goesOn,
		find: findLine(`^\S+:\d+:(?:\d+:)? (?:fatal )?error: .+`),
	},
	{find: findLine(`^.+ at \S+ line \d+\.$`)},
	{
		codes: []int{1}, needsCode: true,
		find: findLine(`^\d{4}/\d\d/\d\d \d\d:\d\d:\d\d (?:\S+\.go:\d+: )?(.+)`),
	},
	{find: findLine(`^(?:ERROR|FATAL|Fatal error|FATAL ERROR): .+`)},
}

// findLine returns a function that finds an error of one line: the last group of an expression or,
// if it has none, all that it matches.
func findLine(expression string) func(lines []string, at int) (string, int) {
	pattern := textutil.CompileLazily(expression)
	return func(lines []string, at int) (string, int) {
		match := pattern().FindStringSubmatch(lines[at])
		if match == nil {
			return "", 0
		}
		return match[len(match)-1], at + 1
	}
}

var (
	namedError = textutil.CompileLazily(`^(?:\w+\.)*\w+(?:Error|Exception): .*\S`)
	// metricLine matches a name with a number, and with what no sentence begins with after a number.
	metricLine = textutil.CompileLazily(`(?i)^[\w.]+: +[-+]?(?:\.?\d[\d.,]*(?:e[-+]?\d+)?%?|nan|inf)` +
		`(?:[,;]|\s*$|\s+[^a-z\s])`)
)

// findException finds an exception without a traceback. A metric can have such a name, too.
func findException(lines []string, at int) (string, int) {
	text := namedError().FindString(lines[at])
	if text == "" || metricLine().MatchString(text) {
		return "", 0
	}
	return text, at + 1
}

// goesOn states that any lines may follow an error, such as a stack.
func goesOn(string, []string) bool { return true }

// onlyIndented returns a function that reports whether only indented lines follow an error, and
// those that begin with one of the given texts.
func onlyIndented(others ...string) func(string, []string) bool {
	return func(_ string, rest []string) bool {
		return !slices.ContainsFunc(rest, func(line string) bool {
			begins := func(text string) bool { return strings.HasPrefix(line, text) }
			return !isEpilogue(line) && !isIndented(line) && !slices.ContainsFunc(others, begins)
		})
	}
}

func isIndented(line string) bool { return line != "" && unicode.IsSpace(rune(line[0])) }

// The lines of Python around an exception.
var (
	tracebackBegin  = textutil.CompileLazily(`Traceback \(most recent call last\):$`)
	pythonException = textutil.CompileLazily(`^(?:\w+\.)*[A-Z]\w*(?:\(\w+\))?(?:: .*|:|)$`)
	syntaxLine      = textutil.CompileLazily(`^(?:Syntax|Indentation|Tab)Error: .+`)
	groupedLine     = textutil.CompileLazily(`^[ |+-]*\| ((?:[a-z_]\w*\.)*[A-Z]\w*(?:: .*)?)$`)
)

// chainLinks are the lines between two tracebacks of one exception.
var chainLinks = []string{
	"During handling of the above exception, another exception occurred:",
	"The above exception was the direct cause of the following exception:",
}

// outerErrors report that another program, or another thread, has failed. The rendezvous of torchrun
// fails as well when its agent ends because of a worker.
var outerErrors = textutil.CompileLazily(`^(?:\w+\.)*(?:ChildFailedError|CalledProcessError` +
	`|Rendezvous(?:Connection|Closed|Timeout)Error` +
	`|ProcessRaisedException|ProcessExitedException)\b|See root cause above` +
	`|DataLoader worker \(pid\(s\)|on an .Err. value: Any` +
	`|\w+Error: \[Errno \d+\] .*/torch-error[\d.]*-\d+\.json.$`) // ranks.ErrorFileName, in a container

// findPython finds an exception that was not caught: the last one of a chain, and of an exception
// group the first one in it.
func findPython(lines []string, at int) (text string, end int) {
	// The first lines of a long traceback are not among the last ones.
	isCut := at == 0 && isIndented(lines[at]) && hasFrame(lines)
	if !tracebackBegin().MatchString(lines[at]) && !isCut {
		return "", 0
	}
	if strings.Contains(lines[at], "Exception Group") {
		return findPythonGroup(lines, at)
	}
	// Skip the frames, and lines of the other output among them.
	i := at + 1
	for i < len(lines) && (!pythonException().MatchString(lines[i]) || hasFrame(lines[i+1:])) {
		if strings.Contains(lines[i], "RayTaskError(") {
			break
		}
		next := slices.IndexFunc(lines[i:min(len(lines), i+maxOtherLines)], isIndented)
		if next < 0 {
			return "", 0
		}
		i += next + 1
	}
	if i >= len(lines) {
		return "", 0
	}
	text, end = lines[i], i+1
	if strings.Contains(text, "RayTaskError(") { // the exception of the task follows
		for i++; i < len(lines) && isIndented(lines[i]); i++ {
		}
		if i < len(lines) && pythonException().MatchString(lines[i]) {
			text, end = lines[i], i+1
		}
	}
	// Follow the chain.
	for j := end; j < len(lines) && j < end+maxMessageLines; j++ {
		if !slices.Contains(chainLinks, lines[j]) {
			continue
		}
		for j++; j < len(lines) && lines[j] == ""; j++ {
		}
		if j < len(lines) {
			if next, nextEnd := findPython(lines, j); nextEnd > 0 && outerErrors().MatchString(next) {
				return text, nextEnd
			} else if nextEnd > 0 {
				return next, nextEnd
			}
		}
		break
	}
	return text, end
}

// hasFrame reports whether a frame of the same traceback is among the next lines.
func hasFrame(lines []string) bool {
	for _, line := range lines[:min(len(lines), maxOtherLines)] {
		switch {
		case tracebackBegin().MatchString(line):
			return false
		case strings.HasPrefix(line, `  File "`):
			return true
		}
	}
	return false
}

// maxOtherLines is the maximum number of lines of standard output in a report on standard error, if
// both are one, and of what a program reports about another one that has failed.
const maxOtherLines = 6

// maxMessageLines is the maximum number of lines of an exception's message, and of what follows it.
const maxMessageLines = 60

// findArgparse finds a mistake in the command line of a Python program.
func findArgparse(lines []string, at int) (text string, end int) {
	name, _, is := strings.Cut(lines[at], ": error: ")
	ofSlurm := strings.HasPrefix(name, "srun") || strings.HasPrefix(name, "slurm")
	if !is || ofSlurm || strings.ContainsAny(name, " \t:") {
		return "", 0
	}
	return lines[at], at + 1
}

// findPythonGroup finds the first exception of an exception group that is no group itself.
func findPythonGroup(lines []string, at int) (text string, end int) {
	for end = at + 1; end < len(lines) && (isIndented(lines[end]) || lines[end] == ""); end++ {
		match := groupedLine().FindStringSubmatch(lines[end])
		if match != nil && text == "" && !strings.Contains(match[1], "ExceptionGroup") {
			text = match[1]
		}
	}
	if text == "" {
		return "", 0
	}
	return text, end
}

// findPythonSyntax finds an error in the program that Python was to run, which has no traceback.
func findPythonSyntax(lines []string, at int) (text string, end int) {
	if !strings.HasPrefix(lines[at], `  File "`) {
		return "", 0
	}
	for i := at + 1; i < len(lines) && i < at+5; i++ {
		if syntaxLine().MatchString(lines[i]) {
			return lines[i], i + 1
		}
	}
	return "", 0
}

// The words of a program that goes on after an exception, and of a log that reports one.
var (
	goingOnWords = textutil.CompileLazily(`(?i)\b(?:retry\w*|trying|continu\w*|falling back` +
		`|skipp\w*|ignor\w*|recover\w*|attempt \d+|restor\w*|resum\w*)\b`)
	logRecord = textutil.CompileLazily(`\b(?:ERROR|WARNING|CRITICAL|EXCEPTION)\b`)
)

// mayFollowPython reports whether lines may follow an exception that nothing has caught: those of
// its message, and of what the interpreter does at the end. A log has a record before an exception
// that was caught.
func mayFollowPython(before string, rest []string) bool {
	others := 0
	for _, line := range rest {
		switch {
		case isEpilogue(line) || isIndented(line):
		case goingOnWords().MatchString(line), logRecord().MatchString(before):
			return false
		default:
			others++
		}
	}
	return others <= maxMessageLines
}

func findGo(lines []string, at int) (text string, end int) {
	line := lines[at]
	if !strings.HasPrefix(line, "panic: ") && !strings.HasPrefix(line, "fatal error: ") {
		return "", 0
	}
	for i := at + 1; i < len(lines) && i < at+10; i++ {
		if strings.HasPrefix(lines[i], "goroutine ") {
			return line, i + 1
		}
	}
	return "", 0
}

// rustPanic matches the first line of a panic, in older versions with its message.
var rustPanic = textutil.CompileLazily(`^thread '.*'(?: \(\d+\))? panicked at (?:'(.*)', )?.*$`)

func findRust(lines []string, at int) (text string, end int) {
	match := rustPanic().FindStringSubmatch(lines[at])
	switch {
	case match == nil:
		return "", 0
	case match[1] != "":
		return match[1], at + 1
	case at+1 < len(lines) && lines[at+1] != "":
		return lines[at+1], at + 2
	}
	return lines[at], at + 1
}

var javaException = textutil.CompileLazily(`^Exception in thread "[^"]*" (.+)`)

// findJava finds an exception that has ended a thread: its innermost cause.
func findJava(lines []string, at int) (text string, end int) {
	match := javaException().FindStringSubmatch(lines[at])
	if match == nil {
		return "", 0
	}
	text = match[1]
	for end = at + 1; end < len(lines); end++ {
		cause, isCause := strings.CutPrefix(lines[end], "Caused by: ")
		if isCause {
			text = cause
		} else if !isIndented(lines[end]) {
			break
		}
	}
	return text, end
}

// findTerminate finds an exception of C++ that nothing has caught.
func findTerminate(lines []string, at int) (text string, end int) {
	name, is := strings.CutPrefix(lines[at], "terminate called after throwing an instance of '")
	if !is {
		if strings.HasPrefix(lines[at], "terminate called ") {
			return lines[at], at + 1
		}
		return "", 0
	}
	text = strings.TrimSuffix(name, "'")
	if at+1 < len(lines) {
		if what, is := strings.CutPrefix(strings.TrimSpace(lines[at+1]), "what():"); is {
			return text + ": " + strings.TrimSpace(what), at + 2
		}
	}
	return text, at + 1
}

// findOpenMPI finds the block of Open MPI about an error that its default handler makes fatal.
func findOpenMPI(lines []string, at int) (text string, end int) {
	_, call, is := strings.Cut(lines[at], "*** An error occurred in ")
	if !is {
		return "", 0
	}
	for i := at + 1; i < len(lines) && i < at+6; i++ {
		if _, code, is := strings.Cut(lines[i], "*** MPI_ERR"); is {
			return "MPI_ERR" + code + " in " + call, i + 1
		}
	}
	return lines[at], at + 1
}

func findR(lines []string, at int) (text string, end int) {
	if !strings.HasPrefix(lines[at], "Error in ") && !strings.HasPrefix(lines[at], "Error: ") {
		return "", 0
	}
	for i := at + 1; i < len(lines) && i < at+10; i++ {
		if lines[i] != "Execution halted" {
			continue
		}
		text = strings.TrimRight(lines[at], " ")
		if strings.HasSuffix(text, ":") {
			text += " " + strings.TrimSpace(lines[at+1])
		}
		return text, i + 1
	}
	return "", 0
}

var nodeError = textutil.CompileLazily(
	`^(?:Uncaught )?(?:\w*Error|DOMException)(?: \[\w+\])?: .+`)

// findNode finds an exception of Node.js, which its stack follows.
func findNode(lines []string, at int) (text string, end int) {
	if !nodeError().MatchString(lines[at]) {
		return "", 0
	}
	for i := at + 1; i < len(lines) && i < at+maxMessageLines; i++ {
		if strings.HasPrefix(lines[i], "Node.js v") {
			return lines[at], i + 1
		}
	}
	return "", 0
}
