package runs

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/signal"
)

// NameKind is what a word of a command line names.
type NameKind int

// The kinds of names that [Finder.Complete] knows.
const (
	RunNames      NameKind = iota // the runs of a log directory, the one that was changed last first
	RoleNames                     // the roles of a run, and their instances
	InstanceNames                 // those instances alone
	NodeNames                     // the indices and hosts of the nodes of a run
	LogNames                      // words for logs by kind: see [SelectLogs]
)

const (
	// completionTimeout is the time for which a user who types waits for names.
	completionTimeout = 500 * time.Millisecond
	// maxCompletedRuns is the maximum number of runs that are offered.
	maxCompletedRuns = 100
)

// safeName matches names that mean themselves in every shell. Others are not offered.
var safeName = textutil.CompileLazily(`^[A-Za-z0-9_][A-Za-z0-9_.+@-]*$`)

// Complete returns the names of these kinds that begin with prefix and need no quoting in a shell. The
// names in a run are those of the run that args select. After half a second it returns those that it has
// found, and without an error if it cannot read them.
func (f Finder) Complete(
	ctx context.Context, logDir string, args []string, prefix string, kinds ...NameKind,
) (names []string) {
	ctx, cancel := context.WithTimeout(ctx, completionTimeout)
	defer cancel()
	offer := func(name string) {
		if strings.HasPrefix(name, prefix) && safeName().MatchString(name) {
			names = append(names, name)
		}
	}
	if slices.ContainsFunc(kinds, func(kind NameKind) bool { return kind != RunNames }) {
		if run, err := f.open(ctx, args); err == nil {
			run.offerNames(ctx, kinds, prefix, offer)
		}
	}
	if slices.Contains(kinds, RunNames) {
		offerRuns(ctx, logDir, prefix, offer)
	}
	return names
}

func offerRuns(ctx context.Context, logDir, prefix string, offer func(string)) {
	folder, err := listLogDir(ctx, logDir)
	if err != nil {
		return
	}
	folder.Names = slices.DeleteFunc(folder.Names, func(name string) bool { return !strings.HasPrefix(name, prefix) })
	all, _ := folder.ListDirs(ctx)
	for _, name := range all[:min(len(all), maxCompletedRuns)] {
		if isRun(ctx, logDir, name) {
			offer(name)
		}
	}
}

// offerNames offers names in a run. Where a kind cannot be read, it offers none.
func (run Opened) offerNames(ctx context.Context, kinds []NameKind, prefix string, offer func(string)) {
	has := func(kind NameKind) bool { return slices.Contains(kinds, kind) }
	if plan := run.Job.Plan; has(LogNames) && plan != nil {
		if plan.Driver != "" && !plan.HasRanks && len(plan.Roles) == 0 {
			offer("driver")
		}
		offer("head")
		if plan.HasRanks {
			offer(allRanksWord)
		}
	}
	if has(LogNames) && strings.HasPrefix(prefix, rankWordPrefix) {
		logs, _ := run.ListNames(ctx, signal.LogsDir)
		for _, name := range logs {
			if _, rank, is := signal.ParseLogName(name); is && isRankLog(name, rank) {
				offer(fmt.Sprint(rankWordPrefix, rank))
			}
		}
	}
	if has(RoleNames) || has(InstanceNames) {
		if placed, err := readRoles(ctx, run.Path()); err == nil {
			for _, role := range placed.Roles {
				if has(RoleNames) {
					offer(role.Name)
				}
				for i := range role.Instances {
					offer(fmt.Sprintf("%s.%d", role.Name, i))
				}
			}
		}
	}
	if has(NodeNames) {
		for node := range run.Job.Size {
			offer(fmt.Sprint(node))
		}
		hosts, _ := run.NewReader().NodeHosts(ctx, run.Job.Size)
		for node := range run.Job.Size {
			offer(hosts[node])
		}
	}
}

// UnquoteWord returns a word of a command line as the shell would pass it on. A command substitution is
// left as it is.
func UnquoteWord(word string) string {
	if strings.Contains(word, "`") || strings.Contains(word, "$(") {
		return word
	}
	if rest, isHome := strings.CutPrefix(word, "~/"); isHome {
		word = filepath.Join(os.Getenv("HOME"), rest)
	}
	var out strings.Builder
	for rest := word; rest != ""; {
		at := strings.IndexAny(rest, `'"\$`)
		if at < 0 {
			return out.String() + rest
		}
		out.WriteString(rest[:at])
		special := rest[at]
		rest = rest[at+1:]
		switch {
		case special == '\'':
			var text string
			text, rest, _ = strings.Cut(rest, "'")
			out.WriteString(text)
		case special == '\\' && rest != "":
			out.WriteByte(rest[0])
			rest = rest[1:]
		case special == '$':
			name := variableName().FindString(rest)
			out.WriteString(os.Getenv(strings.Trim(name, "{}")))
			rest = rest[len(name):]
		}
	}
	return out.String()
}

// variableName matches what follows the dollar sign of a variable.
var variableName = textutil.CompileLazily(`^(\w+|\{\w+\})`)
