package gpu

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/bringupd/bringupd/internal/envlist"
	"github.com/bringupd/bringupd/pkg/process"
)

const (
	// ChildCommand is the subcommand that queries NVML and prints the answers.
	ChildCommand = "gpu-child"
	// DefaultProbeTimeout is the default of Child.Timeout. A driver without persistence mode
	// initialises its GPUs one after the other: more than 25 s were seen with A100s in a virtual
	// machine (Azure/AgentBaker#2829), and with 8 B200 under confidential computing. There a KILL
	// during the initialisation left GPUs that needed a reset (tinfoilsh/cvmimage#363). A call to a
	// GPU's own processor (GSP) without a response returns after 45 s
	// (NVIDIA/open-gpu-kernel-modules#446).
	DefaultProbeTimeout = 120 * time.Second
	// countTimeout is the timeout until the number of GPUs is known, before any is initialised: the
	// driver may have to be loaded.
	countTimeout = time.Minute
	// defaultSilenceTimeout is the default of Child.SilenceTimeout: the child prints a line at each poll of
	// the GPUs.
	defaultSilenceTimeout = 6 * pollInterval
	pollInterval          = 10 * time.Second // interval at which the watch polls a GPU

	// childEnvVariable is set in the environment of the child. Otherwise a program without the
	// subcommand, for example a test binary, would start itself endlessly.
	childEnvVariable = "BRINGUPD_GPU_CHILD"
)

// Child describes the child process that queries NVML. A call to a driver that hangs cannot be
// ended: its thread sleeps uninterruptibly until the node is rebooted, and a process with such a
// thread can be neither killed nor awaited. With a child only that process remains, and the daemon
// continues. If the library lacks a function that is called, the loader ends the child, and not the
// daemon.
//
// The child reads requests as lines from its standard input and writes answers as lines to its
// standard output. Its other output, including standard error, is kept for the error message about
// its death. It ends when its standard input ends, and so when its parent ends. See
// [process.Helper].
type Child struct {
	Program string // empty: the running program
	// Env is the environment of the child, with the directories in which the loader looks for the
	// libraries. nil means that of this process.
	Env []string
	// Timeout is the timeout for an answer, and for the initialisation of each further GPU. 0 means
	// DefaultProbeTimeout. Until the number of GPUs is known it is at most a minute.
	Timeout time.Duration
	// time without output of a watch after which an event of KindSilent is reported; 0: a minute
	SilenceTimeout time.Duration
}

// Probe inspects all GPUs once, with a child of its own. If that fails, Facts.Init contains the
// reason. Probe returns an error only if the context has ended: its cause.
func (c Child) Probe(ctx context.Context) (Facts, error) {
	session := c.NewSession()
	defer func() { _ = session.Close(ctx) }()
	return session.Probe(ctx, func(Progress) {})
}

// NewSession returns a Session that starts this child at its first request.
func (c Child) NewSession() *Session { return &Session{child: c} }

func (c Child) probeTimeout() time.Duration { return cmp.Or(max(c.Timeout, 0), DefaultProbeTimeout) }

func (c Child) commandLine() (path string, args []string) {
	if c.Program == "" {
		return process.OwnBinary, []string{os.Args[0], ChildCommand} // shown by ps and the loader
	}
	return c.Program, []string{c.Program, ChildCommand}
}

func (c Child) environ() []string {
	if c.Env == nil {
		return os.Environ()
	}
	return c.Env
}

// childEnv returns the environment of the child. LD_BIND_NOW is removed, because the loader would
// fail: the functions of NVML are resolved only when they are first called. A dump of all
// goroutines is disabled, because it would hide the one line that explains the child's death.
func (c Child) childEnv() []string {
	env := slices.DeleteFunc(slices.Clone(c.environ()),
		func(entry string) bool { return strings.HasPrefix(entry, "LD_BIND_NOW=") })
	return append(env, childEnvVariable+"=1", "GOTRACEBACK=none")
}

// ProbeTopology returns the topology of this node's GPUs. It starts a child only if there is a sign
// of an NVIDIA GPU. ProbeTopology returns an error only if the context has ended: its cause.
func (c Child) ProbeTopology(ctx context.Context) (Topology, error) {
	if !HasLibrary(c.environ()) && len(FindNVIDIASigns("/")) == 0 {
		return BuildTopology("/", NonNVIDIAFacts("/")), nil
	}
	facts, err := c.Probe(ctx)
	if err != nil {
		return Topology{}, err
	}
	return BuildTopology("/", facts), nil
}

const libraryName = "libnvidia-ml.so.1"

// HasLibrary reports whether the LD_LIBRARY_PATH of an environment has NVML. It is queried then even if
// the machine shows no sign of an NVIDIA GPU.
func HasLibrary(environ []string) bool {
	path, _ := envlist.Lookup(environ, "LD_LIBRARY_PATH")
	return slices.ContainsFunc(filepath.SplitList(path), func(dir string) bool {
		info, err := os.Stat(filepath.Join(dir, libraryName))
		return dir != "" && err == nil && info.Mode().IsRegular()
	})
}
