package ray

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/bringupd/bringupd/pkg/process"
)

// failureLines returns the last lines about a failure from the logs below a node's temporary
// directory, at most a handful, each with its log's name. ray start itself only reports a timeout.
// The lines may belong to an earlier start in the same directory.
func failureLines(tempDir string) []string {
	const maxLines = 8
	find := func(choose func(log string, text []byte) []string, patterns ...string) (lines []string) {
		return sessionLines(tempDir, patterns, choose)
	}
	plain := func(_ string, text []byte) []string { return findFailureLines(text) }
	lines := find(plain, "gcs_server*.err")
	raylet := find(plain, "raylet*.err")
	if len(raylet) == 0 {
		raylet = find(func(_ string, text []byte) []string { return findEndReason(text) }, "raylet*.out")
	}
	// A raylet ends if an agent of it fails, but then it names the agent.
	outlived := false
	agents := find(func(log string, text []byte) []string {
		isLater := bytes.Contains(text, []byte(rayletGoneMessage))
		outlived = outlived || isLater
		name, _, _ := strings.Cut(log, ".")
		if isLater || len(raylet) > 0 && !strings.Contains(strings.Join(raylet, "\n"), name) {
			return nil
		}
		return findFailureLines(text)
	}, "dashboard_agent*.err", "dashboard_agent*.log", "runtime_env_agent*.err", "runtime_env_agent*.log")
	if outlived && len(raylet) == 0 {
		raylet = find(func(_ string, text []byte) []string { return describeSilentEnd(text) }, "raylet*.out")
	}
	lines = slices.Concat(lines, raylet, agents, find(plain, "ray_client_server*.err"))
	return lines[max(0, len(lines)-maxLines):]
}

// sessionLines returns the lines that choose selects from the ends of a session's logs, each with its
// log's name.
func sessionLines(tempDir string, patterns []string, choose func(log string, text []byte) []string) (lines []string) {
	const shown = 300
	for _, pattern := range patterns {
		// the pattern is a constant
		logs, _ := filepath.Glob(filepath.Join(tempDir, "session_latest", "logs", pattern))
		for _, log := range logs {
			name := filepath.Base(log)
			for _, line := range choose(name, readFileEnd(log)) {
				lines = append(lines, name+": "+truncateText(line, shown))
			}
		}
	}
	return lines
}

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

// rayletGoneMessage occurs in the log of an agent that has lived longer than its raylet: see
// python/ray/_private/process_watcher.py of Ray 2.60.
const rayletGoneMessage = "The parent is dead"

// endReasonPrefix begins the line in which a raylet says why it ends.
const endReasonPrefix = "reason_message: "

// findEndReason returns the reason that a raylet gives for its end, which is not logged as an error.
func findEndReason(text []byte) []string {
	for line := range bytes.Lines(text) {
		if reason, is := strings.CutPrefix(strings.TrimSpace(string(line)), endReasonPrefix); is {
			return []string{endReasonPrefix + reason}
		}
	}
	return nil
}

// describeSilentEnd describes the end of a raylet that has logged no reason.
func describeSilentEnd(text []byte) []string {
	last := ""
	for line := range bytes.Lines(text) {
		if line := strings.TrimSpace(string(line)); line != "" && !strings.Contains(line, "[state-dump]") {
			last = line
		}
	}
	return []string{"no reason, as after SIGKILL (by a user or the OOM killer); its last line: " + last}
}

// stackFramePattern matches a line of a stack trace after a signal, whose first line names the
// signal.
var stackFramePattern = regexp.MustCompile(`logging\.cc:\d+: +(PC: )?@ `)

// findFailureLines returns the lines of a log with a fatal error or an error of Ray's C++ parts, or
// the end of a Python traceback; the last one of each kind.
func findFailureLines(text []byte) []string {
	const longest = 2 << 10
	var fatal, failed, raised string
	for part := range bytes.Lines(text) {
		line := strings.TrimRight(string(part[:min(len(part), longest)]), "\r\n")
		switch {
		case strings.Contains(line, noDashboardMessage), stackFramePattern.MatchString(line):
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

// permanentMessages are messages of failures that would occur again, and before which Ray prints some
// of transientMessages.
var permanentMessages = []string{
	"InvalidAuthToken", "Version mismatch: ",
	"Failed to start CgroupManager", // --enable-resource-isolation
}

// transientMessages are messages for failures that may not occur again.
var transientMessages = []string{
	// Another process was faster on a port. The next start looks for its owner first.
	"Address already in use",
	"Failed to bind to",
	"Failed to start the grpc server. The specified port is",
	"does not match persisted value",
	"but is already running at",
	// The other side was slow, or temporarily unreachable.
	"one Ray agent failed",
	"The current node timed out during startup",
	"Timed out while waiting for GCS to become available",
	"Failed to connect to GCS",
	"No node info found for head node in GCS",
	"Failed to get cluster ID from GCS server",
}

// isTransient decides from the exit of "ray start", from its last lines and from Ray's logs,
// whether the same start may succeed a moment later. Unknown failures are not tried again: they
// would recur, and the last lines explain them.
func isTransient(exit process.Exit, lines []string) bool {
	if exit.Signal != 0 || exit.Code == 126 || exit.Code == 127 {
		return false
	}
	isPrinted := func(message string) bool {
		return slices.ContainsFunc(lines, func(line string) bool { return strings.Contains(line, message) })
	}
	return !slices.ContainsFunc(permanentMessages, isPrinted) && slices.ContainsFunc(transientMessages, isPrinted)
}

// adviceForDriver has messages of Ray's command line, and what to do about them. For isDashboard,
// that depends on whether the head's arguments enable the dashboard.
var adviceForDriver = []struct {
	messages    []string
	isDashboard bool
	step        string
}{
	{
		// without an address, and with that of a dashboard
		messages:    []string{"Could not read 'dashboard' from GCS", "Failed to connect to Ray at address: http"},
		isDashboard: true,
		step: `enable Ray's dashboard, which ray job submit needs: --ray-head-args=--include-dashboard=true, ` +
			`or export BRINGUPD_RAY_HEAD_ARGS=--include-dashboard=true; and pip install "ray[default]"`,
	},
	{
		// of ray symmetric-run, and of ray start --head
		messages: []string{"Ray is already started on this node", "does not match persisted value"},
		step: "leave out ray start and ray symmetric-run: bringupd has started the cluster, " +
			"and ray.init() finds it by RAY_ADDRESS",
	},
	{
		messages: []string{"num_cpus and num_gpus must not be provided"},
		step: "leave num_cpus and num_gpus out of ray.init(): the cluster has what the launcher has granted, " +
			"or what --ray-head-args=--num-cpus=N and --ray-worker-args=--num-cpus=N say",
	},
	{
		messages: []string{"Refer to the documentation on how to address the out of memory issue"},
		step: "Ray has ended the task because the memory of the node, or of its cgroup, was nearly used up: " +
			"request more memory, run fewer tasks at a time, or export RAY_memory_usage_threshold=0.99",
	},
}

// adviseDriver returns what to do about a failed driver with these last lines, or an empty string.
func (r Cluster) adviseDriver(lines []string) string {
	flags, err := parseFlags(r.HeadArgs)
	for _, advice := range adviceForDriver {
		if advice.isDashboard && (err != nil || hasDashboard(flags)) {
			continue
		}
		if slices.ContainsFunc(lines, func(line string) bool {
			return slices.ContainsFunc(advice.messages,
				func(message string) bool { return strings.Contains(line, message) })
		}) {
			return advice.step
		}
	}
	return ""
}
