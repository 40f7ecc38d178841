package report

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/console"
	"github.com/bringupd/bringupd/pkg/inspect/timeline"
	"github.com/bringupd/bringupd/pkg/signal"
)

// Limits for the logs that are shown.
const (
	maxTailBytes      = 64 << 10 // bytes that are read from the end of a file
	maxImportantLines = 60       // lines of an important log
	maxNodeLines      = 20       // lines of any other node's log
	// MaxFullRows is the maximum number of nodes for which each node has a row, and its logs are
	// shown.
	MaxFullRows = 128
	maxLogs     = 400 // files
)

// ReadLogs reads the ends of the run's most useful logs: those of the driver, the head and the
// nodes that failed, and of all nodes if there are at most MaxFullRows.
func ReadLogs(ctx context.Context, run *timeline.Run) []LogTail {
	reader, err := signal.OpenReader(ctx, run.Path)
	if err != nil {
		return nil
	}
	folder, err := reader.ListDir(ctx, signal.LogsDir)
	if err != nil {
		return nil
	}
	var logs []LogTail
	for _, log := range selectLogs(run, folder.Names) {
		content, err := folder.ReadFile(ctx, log.name, 2*maxTailBytes)
		logs = append(logs, newLogTail(log, content, err))
	}
	return logs
}

type logSelection struct {
	name                string
	nodeIndex, maxLines int
	priority            int // logs with lower values come first
}

func selectLogs(run *timeline.Run, names []string) (logs []logSelection) {
	ofCause, nodes, exited := causeLog(run), make(map[string]int), make(map[string]bool)
	if run.Roles != nil {
		nodes, exited = run.Roles.LogNodes(), exitLogs(run.Roles)
	}
	// A node is blamed if it has recorded a failure, or if the first cause concerns it.
	cause := run.Cause()
	blamed := func(node int) bool {
		known := node < len(run.Nodes) && len(run.Nodes[node].Failures) > 0
		return known || cause != nil && (cause.NodeIndex == node || slices.Contains(cause.LostNodes, node))
	}
	for _, name := range names {
		what, node, ok := signal.ParseLogName(name)
		of, isOfRole := nodes[trimGeneration(name)]
		w := logSelection{name: name, nodeIndex: node, maxLines: maxNodeLines, priority: 3}
		switch {
		case !ok:
			continue
		case isOfRole && (blamed(of) || exited[name]):
			w.nodeIndex, w.maxLines, w.priority = of, maxImportantLines, 1
		case isOfRole && len(nodes) > MaxFullRows:
			continue
		case isOfRole:
			w.nodeIndex = of
		case what == signal.RankLogPrefix:
			w.nodeIndex = -1 // it belongs to no node
		case node < 0:
			w.maxLines, w.priority = maxImportantLines, 0
			if what == "driver" || what == "head" {
				w.nodeIndex = 0
			}
		case blamed(node):
			w.maxLines, w.priority = maxImportantLines, 1
		case node == 0:
			w.maxLines, w.priority = maxImportantLines, 2
		case run.Size() > MaxFullRows:
			continue
		}
		if name == ofCause {
			w.maxLines, w.priority = maxImportantLines, -1
		}
		logs = append(logs, w)
	}
	// Show the most important logs first.
	slices.SortFunc(logs, func(a, b logSelection) int {
		return cmp.Or(cmp.Compare(a.priority, b.priority), cmp.Compare(a.nodeIndex, b.nodeIndex),
			cmp.Compare(a.name, b.name))
	})
	return logs[:min(len(logs), maxLogs)]
}

// exitLogs returns the names of the logs of the newest exits of instances.
func exitLogs(placed *timeline.PlacedRoles) map[string]bool {
	names := make(map[string]bool)
	for _, role := range placed.Roles {
		for _, instance := range role.Instances {
			if instance.LastExit != nil {
				names[instance.LastExit.Log] = true
			}
		}
	}
	return names
}

// trimGeneration returns the beginning of the name of a log: judge-1 of judge-1.g2.log.
func trimGeneration(name string) string {
	stem := strings.TrimSuffix(name, ".log")
	if at := strings.LastIndex(stem, ".g"); at > 0 {
		return stem[:at]
	}
	return stem
}

const driverLog = "driver.log"

// causeLog returns the name of the log with the output of what has failed, or an empty string if
// there is none.
func causeLog(run *timeline.Run) string {
	if cause := run.Cause(); cause != nil {
		return cause.Log
	}
	if verdict := run.Verdict(); verdict != nil && verdict.Code != 0 {
		return driverLog
	}
	return ""
}

// newLogTail returns the last lines of a log, which may contain anything.
func newLogTail(what logSelection, content signal.FileContent, err error) LogTail {
	log := LogTail{Name: what.name, NodeIndex: what.nodeIndex, Size: content.Size, Lines: []string{}}
	if err != nil {
		log.Error = err.Error()
		return log
	}
	data := content.Data
	if len(content.Tail) > 0 {
		log.Cut, data = true, content.Tail
		// Drop the first line, which is incomplete, unless it is the only one.
		if _, rest, more := bytes.Cut(data, []byte("\n")); more && len(rest) > 0 {
			data = rest
		}
	}
	text := strings.TrimRight(string(data), "\n")
	if text == "" {
		return log
	}
	lines := strings.Split(text, "\n")
	if more := len(lines) - what.maxLines; more > 0 {
		lines, log.Cut = lines[more:], true
	}
	log.Lines = textutil.MapSlice(lines, formatLogLine)
	return log
}

// formatLogLine formats a line of a daemon's own log, which is JSON, for people. It returns other
// lines unchanged.
func formatLogLine(line string) string {
	if strings.HasPrefix(line, `{"level":`) {
		if text, ok := console.FormatRecord([]byte(line)); ok {
			return text
		}
	}
	return line
}
