package ray

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// logPatterns are the logs of a session that explain a failed start. ray start itself only reports
// a timeout.
var logPatterns = []string{"gcs_server*.err", "raylet*.err", "dashboard_agent*.err", "dashboard_agent*.log", "runtime_env_agent*.err", "runtime_env_agent*.log", "ray_client_server*.err"}

// failureLines returns the last lines about a failure from the logs below a node's temporary
// directory, at most a handful, each with its log's name. They may belong to an earlier start in
// the same directory.
func failureLines(tempDir string) []string {
	const most, shown = 8, 300
	var signs []string
	for _, pattern := range logPatterns {
		// the pattern is a constant
		logs, _ := filepath.Glob(filepath.Join(tempDir, "session_latest", "logs", pattern))
		for _, log := range logs {
			for _, line := range findFailureLines(readFileEnd(log)) {
				signs = append(signs, filepath.Base(log)+": "+truncateText(line, shown))
			}
		}
	}
	return signs[max(0, len(signs)-most):]
}

// readFileEnd returns the end of a file, or nothing if it cannot be read.
func readFileEnd(path string) []byte {
	const size = 64 << 10
	file, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return nil
	}
	text, _ := io.ReadAll(io.NewSectionReader(file, max(0, info.Size()-size), size))
	return text
}

// noDashboardMessage occurs in a line that each agent logs without a dashboard, and that explains
// nothing: see python/ray/dashboard/modules/event/event_agent.py of Ray 2.60.
const noDashboardMessage = "Dashboard http address not found"

// findFailureLines returns the lines of a log with a fatal error or an error of Ray's C++ parts, or
// the end of a Python traceback; the last one of each kind.
func findFailureLines(text []byte) []string {
	const longest = 2 << 10
	var fatal, failed, raised string
	for part := range bytes.Lines(text) {
		line := strings.TrimRight(string(part[:min(len(part), longest)]), "\r\n")
		switch {
		case strings.Contains(line, noDashboardMessage):
		case strings.HasPrefix(line, "[") && strings.Contains(truncateText(line, 60), " C "):
			fatal = line
			// Ray's preamble would fill the line.
			if _, check, found := strings.Cut(line, "Check failed: "); found {
				fatal = "Check failed: " + check
			}
		case strings.HasPrefix(line, "[") && strings.Contains(truncateText(line, 60), " E "):
			failed = line
		case isExceptionLine(line):
			raised = line
		}
	}
	return slices.DeleteFunc([]string{failed, fatal, raised}, func(s string) bool { return s == "" })
}

// truncateText returns at most the first n bytes of a text.
func truncateText(s string, n int) string { return s[:min(len(s), n)] }

// isExceptionLine reports whether a line is the last of a traceback: "OSError: [Errno 98] Address
// already in use".
func isExceptionLine(line string) bool {
	class, rest, found := strings.Cut(line, ": ")
	if !found || rest == "" || strings.ContainsAny(class, " \t/") {
		return false
	}
	return strings.HasSuffix(class, "Error") || strings.HasSuffix(class, "Exception")
}
