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

	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/mpi"
	"github.com/bringupd/bringupd/pkg/pause"
	"github.com/bringupd/bringupd/pkg/pmi/pmix"
)

// PMIx is a node's server of PMIx as it starts, beside all that a node does before its ranks run.
type PMIx struct {
	started chan struct{} // closed once server and err are set
	server  *pmix.Server  // nil: there is none
	why     string        // why there is none, although nothing has failed
	err     error
}

// StartPMIx begins to start a server of PMIx, where there is to be one, in a directory within that which private makes. It goes on in the
// background, for as long as that does.
func StartPMIx(cfg *config.Config, private func() (string, error), background func(task func(ctx context.Context)), log *zap.Logger) *PMIx {
	p := &PMIx{started: make(chan struct{})}
	if cfg.World.PMIx == pmix.Off || cfg.World.PMIx == "" || cfg.Play.Ranks != nil {
		p.why = mpi.Off
		close(p.started)
		return p
	}
	background(func(ctx context.Context) {
		if p.why = unneeded(ctx, cfg); p.why != "" {
			log.Debug("no PMIx server is started", zap.String("reason", p.why))
		} else {
			p.server, p.err = start(ctx, cfg, private, log)
		}
		close(p.started)
		if p.server == nil {
			return
		}
		pause.Await(ctx, p.server.Done())
		p.server.Stop()
	})
	return p
}

// await waits for the server. It may be nil, and is then with an error if there should be one.
func (p *PMIx) await(ctx context.Context) (*pmix.Server, error) {
	if !pause.Await(ctx, p.started) {
		return nil, context.Cause(ctx)
	}
	return p.server, p.err
}

// lookTime is how long it may take to find out whether a program may use PMIx.
const lookTime = 5 * time.Second

// unneeded returns why no server is to be started: the program is known not to use one. --pmix=on and
// --pmix=FILE start one for any program.
func unneeded(ctx context.Context, cfg *config.Config) string {
	if cfg.World.PMIx != pmix.Auto {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	environ := slices.Concat(cfg.Environ, cfg.World.Env)
	reason, err := pause.Bounded(ctx, 0, func() (string, error) { return mpi.WithoutPMIx(ctx, cfg.Driver, environ), nil })
	if err != nil {
		return "" // a file system that hangs
	}
	return reason
}

func start(ctx context.Context, cfg *config.Config, private func() (string, error), log *zap.Logger) (*pmix.Server, error) {
	library, err := pmix.Find(cfg.World.PMIx, cfg.Driver[0], cfg.Environ)
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
		Library: library, Environ: withoutPMIx(cfg.Environ), Number: id.Rank, Host: nameOf(id.Host, id.LocalRank()), Dir: dir, Log: log,
	})
}

// withoutPMIx is an environment without what another server has told us.
func withoutPMIx(environ []string) []string {
	return slices.DeleteFunc(slices.Clone(environ), func(entry string) bool { return strings.HasPrefix(entry, "PMIX_") })
}

// nameOf is a node's name for MPI. Several daemons may have one machine, where an MPI would take nodes of one name for one node.
func nameOf(host string, local int) string {
	if local == 0 {
		return host
	}
	return fmt.Sprintf("%s-%d", host, local+1)
}

// distinct are the names of nodes by their hosts.
func distinct(hosts []string) []string {
	names, seen := make([]string, len(hosts)), make(map[string]int)
	for node, host := range hosts {
		names[node] = nameOf(host, seen[host])
		seen[host]++
	}
	return names
}
