package launcher

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// DoctorSuffix ends the name of the run directory of bringupd doctor in a job. It is no run of the
// job.
const DoctorSuffix = "-doctor"

var (
	// runSuffix matches what follows the name of a job or of its step in the name of a run: see
	// Identity.RunName. signal.CreateRun may have added the last part.
	runSuffix = regexp.MustCompile(`^(?:\.(.+?))?(?:-r([0-9]+))?(?:-a([0-9]+))?(?:\+.*)?$`)
	// hetComponent matches a component of Slurm's heterogeneous job, such as 60+1 or, with a step,
	// 60+1.0. The steps of all components have the name of the job.
	hetComponent = regexp.MustCompile(`^([0-9]+)\+[0-9]+((?:\.[0-9]+)?)$`)
	// bracketedElement matches an element of an array as PBS and LSF write it: 17[4].server.
	bracketedElement = regexp.MustCompile(`^([0-9]+)\[([0-9]+)\](?:\..*)?$`)
	slurmJobName     = regexp.MustCompile(`^([0-9]+(?:_[0-9]+)?)((?:\.[0-9]+)?)$`)
)

// NormalizeJobName converts the name of a job or of its step, as the commands of a launcher print
// it, to the beginning of the names of its runs.
func NormalizeJobName(job string) string {
	job = hetComponent.ReplaceAllString(job, "$1$2")
	job = bracketedElement.ReplaceAllString(job, "$1-$2")
	return strings.ReplaceAll(job, "ƒ", "f")
}

// OrderInJob reports whether run is a run of a job, or of one of its steps: job is a name as
// NormalizeJobName returns it. The order of a newer run of a job is larger, by slices.Compare.
func OrderInJob(run, job string) (order []int, isOfJob bool) {
	rest, is := strings.CutPrefix(run, job)
	parts := runSuffix.FindStringSubmatch(rest)
	if !is || job == "" || parts == nil || strings.HasSuffix(run, DoctorSuffix) {
		return nil, false
	}
	number := func(part int) int {
		n, _ := strconv.Atoi(parts[part]) // 0 if the part is missing or no number
		return n
	}
	return []int{number(2), number(1), number(3)}, true // a requeue begins with step 0 again
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

// attemptSuffix matches the number of the attempt in the name of a run.
var attemptSuffix = regexp.MustCompile(attemptSeparator + `([0-9]+)$`)

// NextAttempt returns the name of the attempt that follows a run.
func NextAttempt(run string) string {
	first, attempt := run, 0
	if parts := attemptSuffix.FindStringSubmatch(run); parts != nil {
		first = strings.TrimSuffix(run, parts[0])
		attempt, _ = strconv.Atoi(parts[1]) // it has only digits
	}
	return first + attemptSeparator + strconv.Itoa(attempt+1)
}

// SplitSlurmJob splits the number of a Slurm job, or of an element of an array, from the step that
// may follow it: 50_1.0 has "50_1" and ".0".
func SplitSlurmJob(name string) (job, step string, isJob bool) {
	parts := slurmJobName.FindStringSubmatch(name)
	if parts == nil {
		return "", "", false
	}
	return parts[1], parts[2], true
}

// JobAliases returns the other names of a Slurm job: that of an element of an array, and the
// numbers of the components of a heterogeneous job.
func (id Identity) JobAliases(env Environment) (aliases []string) {
	if id.Launcher != LauncherSlurm {
		return nil
	}
	array, task := env.valueOf("SLURM_ARRAY_JOB_ID"), env.valueOf("SLURM_ARRAY_TASK_ID")
	if isDecimal(array) && isDecimal(task) {
		aliases = append(aliases, array+"_"+task)
	}
	components, _ := strconv.Atoi(env.valueOf("SLURM_HET_SIZE")) // 0 in a job without components
	for component := range min(components, maxHetComponents) {
		number := env.valueOf(fmt.Sprint("SLURM_JOB_ID_HET_GROUP_", component))
		if isDecimal(number) && number != id.Job {
			aliases = append(aliases, number)
		}
	}
	return aliases
}
