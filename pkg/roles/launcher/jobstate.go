package launcher

import (
	"context"
	"errors"
	"os/exec"
	"regexp"
	"slices"
	"strings"

	"github.com/bringupd/bringupd/internal/textutil"
)

// jobQuery is the query for the state of a job by a launcher's own program.
type jobQuery struct {
	argv []string // {job} is the job's id
	// jobIDs matches the names of its jobs, as JobNames returns them; the first group is the id. If
	// asIs matches the name that a user has given, that is the id.
	jobIDs, asIs func() *regexp.Regexp
	// isActive and isOver match what the program prints for a job that has not ended yet, and for one
	// that has ended or is unknown to the launcher. A job that matches both is one of several.
	isActive, isOver func() *regexp.Regexp
}

var (
	// noName matches nothing.
	noName = textutil.CompileLazily(`$^.`)
	// arrayJobID matches the number of a job, its element of an array and what the name of a run adds to
	// them. It does not match a date, which users choose as the name of a run.
	arrayJobID = textutil.CompileLazily(`^([0-9]+(?:-[0-9]+)?)(?:\..*|-[ar][0-9].*)?$`)
)

var slurmQuery = jobQuery{
	argv:   []string{"squeue", "--noheader", "--states=all", "--format=%T", "--jobs={job}"},
	jobIDs: textutil.CompileLazily(`^([0-9]+(?:_[0-9]+)?)(?:\..*)?$`),
	asIs:   noName,
	isActive: textutil.CompileLazily(`\b(PENDING|RUNNING|SUSPENDED|STOPPED|CONFIGURING|COMPLETING|` +
		`STAGE_OUT|SIGNALING|RESIZING|REQUEUED|REQUEUE_(?:HOLD|FED)|RESV_DEL_HOLD|SPECIAL_EXIT)\b`),
	isOver: textutil.CompileLazily(
		`(Invalid job id)|\b(COMPLETED|CANCELLED|FAILED|TIMEOUT|NODE_FAIL|PREEMPTED|BOOT_FAIL|` +
			`DEADLINE|OUT_OF_MEMORY|REVOKED)\b`),
}

// The number of an array is not its id in PBS: both are asked for. Without a history of jobs, one that
// has ended is unknown.
var pbsQuery = jobQuery{
	argv:     []string{"qstat", "-f", "{job}", "{job}[]"},
	jobIDs:   arrayJobID,
	asIs:     textutil.CompileLazily(`^[0-9]+(?:\[[0-9]*\])?\.[^0-9*][^*]*$`),
	isActive: textutil.CompileLazily(`job_state = ([A-EG-WY])\b`),
	isOver:   textutil.CompileLazily(`(Unknown Job Id|has finished)|job_state = [FX]\b`),
}

var fluxQuery = jobQuery{
	argv:     []string{"flux", "jobs", "--no-header", "--format={state}", "{job}"},
	jobIDs:   textutil.CompileLazily(`^(f[1-9A-HJ-NP-Za-km-z]{3,})(?:[.-].*)?$`),
	asIs:     noName,
	isActive: textutil.CompileLazily(`\b(DEPEND|PRIORITY|SCHED|RUN|CLEANUP)\b`),
	isOver:   textutil.CompileLazily(`\b(INACTIVE)\b`),
}

var lsfQuery = jobQuery{
	argv:     []string{"bjobs", "-a", "-noheader", "-o", "stat", "{job}"},
	jobIDs:   arrayJobID,
	asIs:     noName,
	isActive: textutil.CompileLazily(`\b(PEND|PROV|PSUSP|RUN|USUSP|SSUSP|WAIT|UNKWN|ZOMBI)\b`),
	isOver:   textutil.CompileLazily(`is (not found)|\b(DONE|EXIT)\b`),
}

// JobState is what a launcher says of a job.
type JobState struct {
	// IsKnown reports that a launcher has answered. IsOver reports that the job has ended, or that the
	// launcher does not know it any more.
	IsKnown, IsOver bool
	Words           string // the program and its word for the state, such as "squeue: PENDING"
}

// AskJobState asks the launchers that may have a job with this name, as a user gives it, for its
// state. It asks those whose programs are installed.
func AskJobState(ctx context.Context, name string, run ProgramRunner) (state JobState) {
	for _, l := range allLaunchers {
		argv := l.query.command(name)
		if argv == nil {
			continue
		}
		printed, err := run(ctx, argv[0], argv[1:]...)
		switch {
		case errors.Is(err, exec.ErrNotFound):
			continue
		case err != nil:
			printed = err.Error()
		}
		if found := l.query.isActive().FindStringSubmatch(printed); found != nil {
			return JobState{IsKnown: true, Words: argv[0] + ": " + lastGroup(found)}
		}
		if found := l.query.isOver().FindStringSubmatch(printed); found != nil {
			state = JobState{IsKnown: true, IsOver: true, Words: argv[0] + ": " + lastGroup(found)}
		}
	}
	return state
}

// lastGroup returns the last group of a match that is not empty, or all of it.
func lastGroup(match []string) string {
	slices.Reverse(match)
	return match[slices.IndexFunc(match, func(group string) bool { return group != "" })]
}

// command returns the command line for a job, or nil if it has no name of the launcher's.
func (q jobQuery) command(name string) (argv []string) {
	if q.argv == nil || strings.Contains(name, ";") { // sbatch --parsable: the job is on another cluster
		return nil
	}
	id := ""
	for _, job := range JobNames(name) {
		if found := q.jobIDs().FindStringSubmatch(job); found != nil && id == "" {
			id = bracketElement(found[1])
		}
	}
	if q.asIs().MatchString(name) {
		id = name
	}
	if id == "" {
		return nil
	}
	for _, word := range q.argv {
		if strings.HasPrefix(word, "{job}") && word != "{job}" && strings.ContainsAny(id, "[.") {
			continue // the array of an element, or of a job with its server
		}
		argv = append(argv, strings.ReplaceAll(word, "{job}", id))
	}
	return argv
}
