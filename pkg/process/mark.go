package process

import (
	"slices"
	"strings"
)

// markVariable is the variable of a child's environment that says whose it is: a list, as a daemon may be another
// daemon's child, and both must find what belongs to them.
const markVariable = "BRINGUPD_GUARD"

// withMark returns the environment that a child is started with: env with the mark added. Of a name that is there twice
// the last one counts, as os/exec has it. The mark is bound to the job that env names by one of the variables.
func withMark(env []string, mark string, jobs []string) []string {
	if outer, found := LookupEnv(env, markVariable); found {
		mark = outer + "," + mark
	}
	return append(slices.Clip(env), markVariable+"="+mark+jobOf(env, jobs))
}

// jobOf returns what binds a mark to the job that env names: "@SLURM_JOB_ID=17", or nothing.
func jobOf(env, jobs []string) string {
	for _, name := range jobs {
		value, found := LookupEnv(env, name)
		if found && value != "" && !strings.ContainsAny(value, ",@") {
			return "@" + name + "=" + value
		}
	}
	return ""
}

// LookupEnv returns the value of name in env, a list of NAME=VALUE of which the last one counts.
func LookupEnv(env []string, name string) (value string, found bool) {
	for _, entry := range slices.Backward(env) {
		if key, value, ok := strings.Cut(entry, "="); ok && key == name {
			return value, true
		}
	}
	return "", false
}

// marksIn returns the marks in the text of /proc/PID/environ, less those of another job than the text's own.
func marksIn(environ []byte) []string {
	env := strings.Split(string(environ), "\x00")
	list, found := LookupEnv(env, markVariable)
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
