// Package roles tells a daemon who it is: its rank, its node, its peers and its role, and whether the launch
// that started it is a mistake. It knows nothing of processes, and reads no files and no environment of its own.
package roles

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// RunVariable is the environment variable that tells the children of a daemon the RunName of their run. A
// daemon that finds its own run name there has been started inside itself.
const RunVariable = "BRINGUPD_RUN"

// Environment looks a variable up, as os.LookupEnv does. A variable that is empty counts as one not set.
type Environment func(name string) (value string, set bool)

// EnvironmentOf looks variables up in a list of NAME=VALUE, of which the first counts, as for getenv.
func EnvironmentOf(environ []string) Environment {
	return func(name string) (string, bool) {
		for _, entry := range environ {
			if value, found := strings.CutPrefix(entry, name+"="); found {
				return value, true
			}
		}
		return "", false
	}
}

func (env Environment) get(name string) string {
	value, _ := env(name)
	return value
}

// first returns the first of these variables that is set, and its name.
func (env Environment) first(names ...string) (name, value string) {
	for _, name := range names {
		if value := env.get(name); value != "" {
			return name, value
		}
	}
	return names[0], ""
}

// number reads a whole number of at least least from the first of these variables that is set.
func (env Environment) number(least int, names ...string) (int, error) {
	name, value := env.first(names...)
	if value == "" {
		return 0, fmt.Errorf("%s is not set, and should be a whole number of at least %d", name, least)
	}
	n, err := strconv.Atoi(value)
	if err != nil || n < least {
		return 0, fmt.Errorf("%s is %q, and should be a whole number of at least %d", name, value, least)
	}
	return n, nil
}

// Want is what the command line says about the launch. The zero Want leaves everything to the environment.
type Want struct {
	// Hosts are where "bringupd hosts" has started the ranks, as ssh was told; the environment of a launcher does not count.
	Hosts []string
	Local bool // this is a rank that "bringupd local" started: the environment of a launcher does not count
	Rank  *int // --rank: given together with Size; they outrank the environment
	Size  *int // the most of --nnodes: counts where no launcher tells a size, or with Rank
	// JobID is --job-id: it names the run where the launcher doesn't, or one of several in the launcher's job; unused
	// under Slurm.
	JobID string
	CPUs  int // how many this process may run on; 0 if that is not known
	// ReadFile reads a file that the launcher names, all of it or nothing; nil: none is read.
	ReadFile func(path string) ([]byte, error)
	// Ancestry is asked which of several launchers has started this process.
	Ancestry Ancestry
}

// Identity is who a daemon is. All ranks of a run have the same Launcher, Size, Job, Step, Restart, Attempt and Key.
type Identity struct {
	Launcher Launcher
	Rank     int    // 0 … Size-1
	Size     int    // daemons in the run, one a node
	Host     string // this node's name, as the launcher has it

	// Hosts has the host of each rank; nil where the launcher doesn't tell, or tells it in an order that
	// is not the order of the ranks (srun --distribution=arbitrary).
	Hosts []string

	Job     string
	Step    string // empty where the launcher has no steps
	Restart int    // how often the job was requeued
	Attempt int    // how often the run was begun anew within this launch

	// Key digests what all ranks of this launch share and another launch of the same RunName, within one
	// cluster, most likely does not: job ids start again when a controller loses its state.
	Key string

	// LaunchAddress is the address or name of the host that launched the run, empty where not told: it is
	// somewhere to route towards, and may be a loopback address.
	LaunchAddress string

	LocalSize int // daemons on this machine: 1 but for Local
	GPUs      int // granted to this node, -1 where not told
	CPUs      int // granted to this node, 0 where not told

	GPUsFrom string // the variable, or the flag, that tells GPUs; empty where not told
}

// Identify finds out from its launcher who this daemon is. It believes, in this order: want, the launcher
// that has started this very process, which its ancestors show if several may have, RANK and WORLD_SIZE. A size alone is no launch: where a launcher tells one, it outranks the one that is wanted. The
// host name given stands in where the launcher tells none. A launch that cannot work is a *LaunchError.
func Identify(env Environment, hostname string, want Want) (Identity, error) {
	ancestors := want.Ancestry.see()
	env = env.withoutStep(ancestors)
	by, err := likeliest(env, want, ancestors)
	if err != nil {
		return Identity{}, err
	}
	id, err := by.identify(env, hostname, want)
	if err != nil {
		return Identity{}, err
	}
	if err := CheckRunName(id.RunName()); err != nil {
		return Identity{}, &LaunchError{
			Problem: fmt.Sprintf("cannot name a run %q: its directory has the same name", clip(id.RunName())),
			Mend:    "give --job-id=NAME: " + err.Error(),
		}
	}
	if run := env.get(RunVariable); run == id.RunName() || hasAttempt(run, id.RunName()) {
		return Identity{}, nestedError(id)
	}
	return id, nil
}

// RunName returns the name of this run's directory, "<job>.<step>", with "-r<restart>" after a requeue and
// "-a<attempt>" where it was begun anew. It is the same on all ranks, and made of letters, digits and "._+-" alone.
func (id Identity) RunName() string {
	name := id.Job
	if id.Step != "" {
		name += "." + id.Step
	}
	if id.Restart > 0 {
		name += "-r" + strconv.Itoa(id.Restart)
	}
	if id.Attempt > 0 {
		name += attemptMark + strconv.Itoa(id.Attempt)
	}
	return name
}

// attemptMark stands in a run's name before the number of its attempt.
const attemptMark = "-a"

// hasAttempt tells whether a run is a later attempt of the launch whose first one has this name.
func hasAttempt(run, first string) bool {
	digits, is := strings.CutPrefix(run, first+attemptMark)
	return is && isDecimal(digits)
}

// LocalRank is the rank among the daemons of this machine: 0 but for Local.
func (id Identity) LocalRank() int {
	if id.LocalSize > 1 {
		return id.Rank
	}
	return 0
}

// Title is the launcher's name for people; empty if it has none.
func (id Identity) Title() string { return id.Launcher.Words(id.Job).Title }

// HostOf returns the host of a rank, or the empty string where the launcher doesn't tell it.
func (id Identity) HostOf(rank int) string {
	switch {
	case rank == id.Rank:
		return id.Host
	case rank >= 0 && rank < len(id.Hosts):
		return id.Hosts[rank]
	default:
		return ""
	}
}

// reservedNames are the names in a log directory that are no run's: see package signal.
var reservedNames = []string{"latest", "history", "bad-nodes"}

// CheckRunName returns an error that says what is accepted if name cannot be the name of a run.
// The name becomes that of a directory, and listings of runs leave out names that begin with a dot.
// Some file systems ignore case.
func CheckRunName(name string) error {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	switch {
	case name == "", len(name) > 128, strings.Trim(name, letters+decimal+"._+-") != "", strings.ContainsAny(name[:1], "._+-"):
		return errors.New(`use 1 to 128 letters, digits and "._+-", of which the first is a letter or a digit`)
	case slices.ContainsFunc(reservedNames, func(reserved string) bool { return strings.EqualFold(name, reserved) }):
		return fmt.Errorf("the log directory has a %s of its own: use any name but %s", strings.ToLower(name), strings.Join(reservedNames, ", "))
	}
	return nil
}

const decimal = "0123456789"

func isDecimal(text string) bool { return text != "" && strings.Trim(text, decimal) == "" }

// digest returns a short hexadecimal digest of facts; no two lists of facts run into each other.
func digest(facts ...string) string {
	var b strings.Builder
	for _, fact := range facts {
		fmt.Fprintf(&b, "%d:%s\n", len(fact), fact)
	}
	sum := sha256.Sum256([]byte(b.String()))
	return hex.EncodeToString(sum[:8])
}
