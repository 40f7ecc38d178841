package launcher

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/bringupd/bringupd/internal/textutil"
)

// jobForm is a form in which the commands of a launcher print jobs.
type jobForm struct {
	pattern     func() *regexp.Regexp
	replacement string // the form of the names of runs
}

// jobForms are applied one after the other.
var jobForms = []jobForm{
	{textutil.CompileLazily(`;.*$`), ""}, // sbatch --parsable: 53;cluster
	// An element of an array that waits, in squeue's 50_[3], and one of PBS or LSF, 17[4].server.
	{textutil.CompileLazily(`^([0-9]+)_\[([0-9]+)(?:%[0-9]+)?\]$`), "${1}_$2"},
	{textutil.CompileLazily(`^([0-9]+)\[([0-9]+)\](?:\..*)?$`), "$1-$2"},
	// An array, in squeue's 50_[3-9%2] and in PBS's 17[].server.
	{textutil.CompileLazily(`^([0-9]+)_?\[.*\](?:\..*)?$`), "$1"},
	// A component of Slurm's heterogeneous job, such as 60+1 or, with a step, 60+1.0 or 60.0+1. The
	// steps of all components have the name of the job.
	{textutil.CompileLazily(`^([0-9]+)\+[0-9]+((?:\..*)?)$`), "$1$2"},
	{textutil.CompileLazily(`^([0-9]+\.[0-9]+)\+[0-9]+$`), "$1"},
}

var (
	slurmJobName = textutil.CompileLazily(`^([0-9]+(?:_[0-9]+)?)((?:\.[0-9]+)?)$`)
	// fluxID is an id of Flux as a number: decimal, hexadecimal, or as in its key-value store.
	fluxID = textutil.CompileLazily(
		`^(?:([0-9]+)|0x([0-9a-f]+)|(?:job\.)?([0-9a-f]{4})\.([0-9a-f]{4})\.([0-9a-f]{4})\.([0-9a-f]{4}))$`)
	// A run of an element of an array has its index behind the job's number, and one in a nested
	// instance of Flux the ids of the instances around it before its own.
	elementSuffix = textutil.CompileLazily(`^-[0-9]+(.*)$`)
	nestedSuffix  = textutil.CompileLazily(`^(?:-f[1-9A-Za-z]+)+(.*)$`)
)

// JobNames converts the name of a job or of its step, as the commands of a launcher print it, to
// the possible beginnings of the names of its runs, the likeliest first.
func JobNames(name string) []string {
	name = strings.ReplaceAll(name, "ƒ", "f")
	names := []string{name}
	for _, form := range jobForms {
		name = form.pattern().ReplaceAllString(name, form.replacement)
	}
	names = append(names, name, formatFluxID(name))
	// PBS names its server (16.server), and Slurm its own steps (53.batch). A number is that of a step, and
	// what is no number before the dot is the name of a launch.
	if job, rest, _ := strings.Cut(name, "."); rest != "" && !isDecimal(rest[:1]) && slurmJobName().MatchString(job) {
		names = append(names, job)
	}
	known := make(map[string]bool)
	return slices.DeleteFunc(names, func(name string) bool {
		defer func() { known[name] = true }()
		return name == "" || known[name]
	})
}

// formatFluxID returns an id of Flux that is written as a number in the form that names of runs
// have. It returns an empty string if it is none: the time of its job is more than 24 bits.
func formatFluxID(name string) string {
	const alphabet = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
	found := fluxID().FindStringSubmatch(name)
	if found == nil {
		return ""
	}
	base, digits := 16, strings.Join(found[2:], "")
	if found[1] != "" {
		base, digits = 10, found[1]
	}
	id, err := strconv.ParseUint(digits, base, 64)
	if err != nil || id < 1<<24 {
		return ""
	}
	var text []byte
	for ; id > 0; id /= uint64(len(alphabet)) {
		text = append(text, alphabet[id%uint64(len(alphabet))])
	}
	slices.Reverse(text)
	return "f" + string(text)
}

// IsWithinJob reports whether a run is that of an element of the array job, or of a job of Flux in
// the instance of the job, or with this id in an instance.
func IsWithinJob(run, job string) bool {
	pattern := nestedSuffix
	switch {
	case isDecimal(job):
		pattern = elementSuffix
	case !strings.HasPrefix(job, "f"):
		return false
	default:
		if at := strings.LastIndex(run, "-"+job); at >= 0 {
			_, is := parseRunName(run[at+1:], job)
			return is && nestedSuffix().MatchString("-"+run[:at])
		}
	}
	rest, is := strings.CutPrefix(run, job)
	found := pattern().FindStringSubmatch(rest)
	return is && found != nil && runSuffix().MatchString(found[1])
}

// SplitSlurmJob splits the number of a Slurm job, or of an element of an array, from the step that
// may follow it: 50_1.0 has "50_1" and ".0".
func SplitSlurmJob(name string) (job, step string, isJob bool) {
	parts := slurmJobName().FindStringSubmatch(name)
	if parts == nil {
		return "", "", false
	}
	return parts[1], parts[2], true
}

// JobAliases returns the other names of a job: that of an element of a Slurm array, the numbers of
// the components of a heterogeneous job, and PBS's id with its server.
func (id Identity) JobAliases(env Environment) (aliases []string) {
	switch id.Launcher {
	case LauncherPBS, LauncherPALS:
		if job := env.valueOf("PBS_JOBID"); job != "" {
			aliases = append(aliases, job)
		}
		return aliases
	case LauncherSlurm:
	default:
		return nil
	}
	array, task := env.valueOf("SLURM_ARRAY_JOB_ID"), env.valueOf("SLURM_ARRAY_TASK_ID")
	if isDecimal(array) && isDecimal(task) {
		aliases = append(aliases, array+"_"+task)
	}
	for component := range slurmComponentCount(env) {
		number := env.valueOf(fmt.Sprint("SLURM_JOB_ID_HET_GROUP_", component))
		if isDecimal(number) && number != id.Job {
			aliases = append(aliases, number)
		}
	}
	return aliases
}

// IsOtherName reports whether a name with what follows the first dot, as in 16.server, is not that
// of the job with these aliases: it may be a launch of the job with a name, 16.eval.
func IsOtherName(name string, aliases []string) bool {
	_, rest, _ := strings.Cut(name, ".")
	if rest == "" || isDecimal(rest[:1]) {
		return false
	}
	name = strings.TrimSuffix(name, "*") // qstat cuts long names
	isOne := func(alias string) bool { return strings.HasPrefix(alias, name) }
	hasServer := func(alias string) bool { return strings.Contains(alias, ".") }
	_, isStep := pseudoSteps[rest]
	return (!isStep || slices.ContainsFunc(aliases, hasServer)) && !slices.ContainsFunc(aliases, isOne)
}
