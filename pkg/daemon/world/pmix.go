package world

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/pkg/daemon/deps"
	"github.com/bringupd/bringupd/pkg/ranks/mpidetect"
	"github.com/bringupd/bringupd/pkg/ranks/pmi/pmix"
)

// PMIxStartup is the node's PMIx server, which starts in the background while the node prepares its
// ranks.
type PMIxStartup struct {
	started chan struct{} // closed once server and err are set
	server  *pmix.Server  // nil if there is no server
	reason  string        // reason for not starting a server; empty if it was started or failed
	err     error         // error of the start
}

// StartPMIx starts the node's PMIx server in the background, if the configuration and the program
// require one. The server uses a directory below the one that private returns, and stops when the
// task that background runs is cancelled.
func StartPMIx(cfg *deps.Config, private func() (string, error), background func(task func(ctx context.Context)), log *zap.Logger) *PMIxStartup {
	p := &PMIxStartup{started: make(chan struct{})}
	if cfg.World.PMIx == pmix.Off || cfg.World.PMIx == "" || cfg.Simulation.RunRanks != nil {
		p.reason = mpidetect.PMIxDisabled
		close(p.started)
		return p
	}
	background(func(ctx context.Context) {
		if p.reason = reasonWithoutPMIx(ctx, cfg); p.reason != "" {
			log.Debug("no PMIx server is started", zap.String("reason", p.reason))
		} else {
			p.server, p.err = startPMIxServer(ctx, cfg, private, log)
		}
		close(p.started)
		if p.server == nil {
			return
		}
		ctxutil.AwaitDone(ctx, p.server.Done())
		p.server.Stop()
	})
	return p
}

// awaitServer waits until the server has been started. It returns nil without an error if no server
// is needed.
func (p *PMIxStartup) awaitServer(ctx context.Context) (*pmix.Server, error) {
	if !ctxutil.AwaitDone(ctx, p.started) {
		return nil, context.Cause(ctx)
	}
	return p.server, p.err
}

// pmixProbeTimeout limits the time for finding out whether a program can use PMIx.
const pmixProbeTimeout = 5 * time.Second

// reasonWithoutPMIx returns the reason for not starting a server: the program is known not to use
// PMIx. It returns an empty string with --pmix=on and --pmix=FILE, which start a server for any
// program.
func reasonWithoutPMIx(ctx context.Context, cfg *deps.Config) string {
	if cfg.World.PMIx != pmix.Auto {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, pmixProbeTimeout)
	defer cancel()
	environ := slices.Concat(cfg.Environ, cfg.World.Env)
	reason, err := ctxutil.CallBounded(ctx, 0, func() (string, error) { return mpidetect.WithoutPMIx(ctx, cfg.Driver, environ), nil })
	if err != nil {
		return "" // the file system is unresponsive; start a server to be safe
	}
	return reason
}

// start finds libpmix and starts a server that uses it.

func startPMIxServer(ctx context.Context, cfg *deps.Config, private func() (string, error), log *zap.Logger) (*pmix.Server, error) {
	library, err := pmix.FindLibrary(cfg.World.PMIx, cfg.Driver[0], cfg.Environ)
	if err != nil {
		return nil, err
	}
	dir, err := private()
	if err != nil {
		return nil, err
	}
	dir = filepath.Join(dir, "pmix")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	id := cfg.Identity
	return pmix.Start(ctx, pmix.Config{
		Library: library, Environ: withoutPMIx(cfg.Environ), ServerNumber: id.NodeIndex, Host: mpiNodeName(id.Host, id.LocalRank()), Dir: dir, Log: log,
	})
}

// withoutPMIx returns an environment without the variables of another PMIx server.
func withoutPMIx(environ []string) []string {
	return slices.DeleteFunc(slices.Clone(environ), func(entry string) bool { return strings.HasPrefix(entry, "PMIX_") })
}

// mpiNodeName returns the name of a node for MPI. If several daemons share a host, each node needs
// a different name; otherwise MPI libraries would regard them as one node.
func mpiNodeName(host string, local int) string {
	if local == 0 {
		return host
	}
	return fmt.Sprintf("%s-%d", host, local+1)
}

// distinctNames returns the distinct names of nodes, given their hosts.
func distinctNames(hosts []string) []string {
	names, seen := make([]string, len(hosts)), make(map[string]int)
	for node, host := range hosts {
		names[node] = mpiNodeName(host, seen[host])
		seen[host]++
	}
	return names
}
