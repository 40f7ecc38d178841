package process

import (
	"slices"
	"strings"
)

// MarkVariable is the environment variable that holds the marks of a child. It is a list, because a
// daemon may be a child of another daemon, and both must recognise their processes. A process that
// is no child must not have it.
const MarkVariable = "BRINGUPD_GUARD"

// withMark returns env with the mark added, for the start of a child. If a name occurs twice, the
// last entry counts, as in os/exec. The mark is bound to the job that env names by one of the
// variables in jobs.
func withMark(env []string, mark string, jobs []string) []string {
	if outer, found := LookupEnv(env, MarkVariable); found {
		mark = outer + "," + mark
	}
	return append(slices.Clip(env), MarkVariable+"="+mark+jobSuffix(env, jobs))
}

// jobSuffix returns the suffix that binds a mark to the job named in env, such as
// "@SLURM_JOB_ID=17"; empty if none.
func jobSuffix(env, jobs []string) string {
	for _, name := range jobs {
		value, found := LookupEnv(env, name)
		if found && value != "" && !strings.ContainsAny(value, ",@") {
			return "@" + name + "=" + value
		}
	}
	return ""
}

// LookupEnv returns the value of name in env, a list of NAME=VALUE entries of which the last one
// counts.
func LookupEnv(env []string, name string) (value string, found bool) {
	for _, entry := range slices.Backward(env) {
		if key, value, ok := strings.Cut(entry, "="); ok && key == name {
			return value, true
		}
	}
	return "", false
}

// parseMarks returns the marks in the content of /proc/PID/environ, except marks that are bound to
// another job than the one the environment names.
func parseMarks(environ []byte) []string {
	env := strings.Split(string(environ), "\x00")
	list, found := LookupEnv(env, MarkVariable)
	if !found {
		return nil
	}
	var marks []string
	for entry := range strings.SplitSeq(list, ",") {
		mark, bond, bound := strings.Cut(entry, "@")
		if bound {
			name, job, _ := strings.Cut(bond, "=")
			if now, has := LookupEnv(env, name); has && now != job {
				continue
			}
		}
		marks = append(marks, mark)
	}
	return marks
}
