package launcher

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/bringupd/bringupd/internal/textutil"
)

// DoctorSuffix ends the name of the run directory of bringupd doctor in a job. It is no run of the
// job.
const DoctorSuffix = "-doctor"

// attemptSeparator precedes the number of the attempt in a run's name.
const attemptSeparator = "-a"

var (
	// runSuffix matches what follows the name of a job or of its step in the name of a run: see
	// Identity.RunName. signal.CreateRun may have added the last part.
	runSuffix = textutil.CompileLazily(`^(?:\.(.+?))?(?:-r([0-9]+))?(?:-a([0-9]+))?(?:\+.*)?$`)
	runName   = textutil.CompileLazily(`^[A-Za-z0-9][A-Za-z0-9._+-]*$`)
)

// RunName returns the name of this run's directory, "<job>.<step>", with "-r<restart>" after a
// requeue and "-a<attempt>" after a restart. It is the same on all nodes, and contains only
// letters, digits and "._+-".
func (id Identity) RunName() string {
	name := id.Job
	if id.Step != "" {
		name += "." + id.Step
	}
	if id.Restart > 0 {
		name += "-r" + strconv.Itoa(id.Restart)
	}
	if id.Attempt > 0 {
		name += attemptSeparator + strconv.Itoa(id.Attempt)
	}
	return name
}

type runParts struct {
	step             string
	restart, attempt int
}

func parseRunName(run, job string) (parts runParts, ok bool) {
	rest, is := strings.CutPrefix(run, job)
	found := runSuffix().FindStringSubmatch(rest)
	if !is || found == nil {
		return runParts{}, false
	}
	parts.step = found[1]
	parts.restart, _ = strconv.Atoi(found[2]) // 0 if the part is missing
	parts.attempt, _ = strconv.Atoi(found[3])
	return parts, true
}

// IsRunOf reports whether run is an attempt of the launch whose first attempt is first.
func IsRunOf(run, first string) bool {
	digits, is := strings.CutPrefix(run, first+attemptSeparator)
	return run == first || is && isDecimal(digits)
}

// AdoptRun makes the identity of a daemon of a further step of a run that of a member: the run has
// this name, and so many nodes, of which member's has this daemon.
func (id *Identity) AdoptRun(name, key string, member, size int) {
	id.NodeIndex, id.Size, id.Hosts, id.LaunchKey = member, size, nil, key
	parts, _ := parseRunName(name, id.Job)
	id.Step, id.Attempt = parts.step, parts.attempt
}

// IsRunOfJob reports whether a name is that of an attempt of any launch of the job of id, after the
// same number of requeues.
func (id Identity) IsRunOfJob(name string) bool {
	parts, is := parseRunName(name, id.Job)
	return is && parts.restart == id.Restart && !strings.Contains(parts.step, "-")
}

// OrderInJob reports whether run is a run of a job, or of one of its steps: job is one of JobNames. The
// order of a newer run of a job is larger, by slices.Compare.
func OrderInJob(run, job string) (order []int, isOfJob bool) {
	parts, is := parseRunName(run, job)
	if !is || job == "" || strings.HasSuffix(run, DoctorSuffix) {
		return nil, false
	}
	step, _ := strconv.Atoi(parts.step)                    // 0 if it is no number
	return []int{parts.restart, step, parts.attempt}, true // a requeue begins with step 0 again
}

// CountRestarts returns how often a job had been requeued and its launch been restarted before a
// run, from the name of the run. launchID is the name of the job in the names of its runs.
func CountRestarts(run, launchID string) int {
	order, isOfJob := OrderInJob(run, launchID)
	if !isOfJob {
		return 0
	}
	return order[0] + order[2]
}

// AttemptName returns the name of a later attempt, which is not the first one, of the launch of a
// run.
func AttemptName(run string, attempt int) string {
	if at := strings.LastIndex(run, attemptSeparator); at >= 0 && isDecimal(run[at+len(attemptSeparator):]) {
		run = run[:at]
	}
	return run + attemptSeparator + strconv.Itoa(attempt)
}

// RequeueName returns the name of the same launch after another requeue of the job of a run.
// launchID is the name of the job in the names of its runs.
func RequeueName(run, launchID string) string {
	parts, _ := parseRunName(run, launchID)
	return Identity{Job: launchID, Step: parts.step, Restart: parts.restart + 1}.RunName()
}

// reservedNames are names in a log directory that are not runs: see package signal.
var reservedNames = []string{"latest", "history", "bad-nodes"}

// CheckRunName returns an error, which states what is accepted, if name cannot be the name of a
// run. The name becomes that of a directory, and listings of runs skip names that begin with a dot.
// Some file systems ignore case.
func CheckRunName(name string) error {
	isReserved := func(reserved string) bool { return strings.EqualFold(name, reserved) }
	switch {
	case len(name) > 128, !runName().MatchString(name):
		return errors.New(`use 1 to 128 letters, digits and "._+-", ` +
			`of which the first is a letter or a digit`)
	case slices.ContainsFunc(reservedNames, isReserved):
		return fmt.Errorf("the log directory contains its own %s: use any name but %s",
			strings.ToLower(name), strings.Join(reservedNames, ", "))
	}
	return nil
}

const decimalDigits = "0123456789"

func isDecimal(text string) bool { return text != "" && strings.Trim(text, decimalDigits) == "" }

// digestFacts returns a short hexadecimal digest of facts. Different lists of facts never have the
// same input.
func digestFacts(facts ...string) string {
	var b strings.Builder
	for _, fact := range facts {
		fmt.Fprintf(&b, "%d:%s\n", len(fact), fact)
	}
	sum := sha256.Sum256([]byte(b.String()))
	return hex.EncodeToString(sum[:8])
}
