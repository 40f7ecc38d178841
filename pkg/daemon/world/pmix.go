package world

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/internal/files"
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

// PMIxConfig configures a PMIx server of a node.
type PMIxConfig struct {
	*deps.Config
	Argv         []string // the ranks'
	Environ      []string // the ranks'
	Host         string   // name of the node for MPI; empty for that of a world on all nodes
	ServerNumber int      // unique among the servers of the node's run
	// PrivateDir returns a directory that only this user can access, in which the server creates its
	// own, DirName.
	PrivateDir func() (string, error)
	DirName    string
}

// StartPMIx starts a PMIx server of the node in the background, if the configuration and the program
// require one. It stops when the task that background runs is cancelled.
func StartPMIx(cfg PMIxConfig, background func(task func(ctx context.Context)), log *zap.Logger) *PMIxStartup {
	p := &PMIxStartup{started: make(chan struct{})}
	if cfg.World.PMIx == pmix.Off || cfg.World.PMIx == "" || cfg.Simulation.RunRanks != nil {
		p.reason = mpidetect.PMIxDisabled
		close(p.started)
		return p
	}
	background(func(ctx context.Context) {
		var dir *files.OwnedDir
		if p.reason = reasonWithoutPMIx(ctx, cfg); p.reason != "" {
			log.Debug("no PMIx server is started", zap.String("reason", p.reason))
		} else {
			p.server, dir, p.err = startPMIxServer(ctx, cfg, log)
		}
		if p.err != nil && cfg.World.PMIx == pmix.Auto && ctx.Err() == nil {
			// Most programs have no MPI; the advice for one that lacks PMIx leads to this reason.
			log.Debug("ranks have PMI-1 but not PMIx, which Open MPI needs", zap.Error(p.err))
		}
		close(p.started)
		if p.server == nil {
			return
		}
		ctxutil.AwaitDone(ctx, p.server.Done())
		p.server.Stop()
		if err := dir.Remove(); err != nil { // otherwise it is removed at the end of the daemon
			log.Debug("cannot remove the directory of a PMIx server", zap.Error(err))
		}
	})
	return p
}

// Renew calls start, which starts a server for another generation of the ranks, unless they have
// none. The start must have ended.
func (p *PMIxStartup) Renew(start func() *PMIxStartup) *PMIxStartup {
	if p == nil || p.server == nil {
		return p
	}
	return start()
}

// awaitServer waits until the server has been started. It returns nil without an error if no server
// is needed.
func (p *PMIxStartup) awaitServer(ctx context.Context) (*pmix.Server, error) {
	if !ctxutil.AwaitDone(ctx, p.started) {
		return nil, context.Cause(ctx)
	}
	return p.server, p.err
}

const pmixProbeTimeout = 5 * time.Second

// reasonWithoutPMIx returns the reason for not starting a server: the program is known not to use
// PMIx. It returns an empty string with --pmix=on and --pmix=FILE, which start a server for any
// program.
func reasonWithoutPMIx(ctx context.Context, cfg PMIxConfig) string {
	if cfg.World.PMIx != pmix.Auto {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, pmixProbeTimeout)
	defer cancel()
	reason, err := ctxutil.CallBounded(ctx, 0, func() (string, error) {
		return mpidetect.WithoutPMIx(ctx, cfg.Argv, cfg.Environ), nil
	})
	if err != nil {
		return "" // the file system is unresponsive; start a server to be safe
	}
	return reason
}

// startPMIxServer starts the server with a directory of its own, which the caller removes after its
// end.
func startPMIxServer(
	ctx context.Context, cfg PMIxConfig, log *zap.Logger,
) (server *pmix.Server, dir *files.OwnedDir, err error) {
	library, err := pmix.FindLibrary(cfg.World.PMIx, cfg.Argv[0], cfg.Config.Environ)
	if err != nil {
		return nil, nil, err
	}
	parent, err := cfg.PrivateDir()
	if err != nil {
		return nil, nil, err
	}
	if dir, err = files.MakeOwnedDir(filepath.Join(parent, cfg.DirName)); err != nil {
		return nil, nil, err
	}
	host := cmp.Or(cfg.Host, mpiNodeName(cfg.Identity.Host, cfg.Identity.LocalRank()))
	server, err = pmix.Start(ctx, pmix.Config{
		Library: library, Environ: withoutPMIx(cfg.Config.Environ), ServerNumber: cfg.ServerNumber, Host: host,
		Dir: dir, Log: log,
	})
	return server, dir, err
}

func withoutPMIx(environ []string) []string {
	return slices.DeleteFunc(slices.Clone(environ), func(entry string) bool {
		return strings.HasPrefix(entry, "PMIX_")
	})
}

// mpiNodeName returns the name of a node for MPI. If several daemons share a host, each node needs
// a different name; otherwise MPI libraries would regard them as one node.
func mpiNodeName(host string, local int) string {
	if local == 0 {
		return host
	}
	return fmt.Sprintf("%s-%d", host, local+1)
}

// NodeNames returns the distinct names of the nodes of a world for MPI, given their hosts.
func NodeNames(hosts []string) []string {
	names, seen := make([]string, len(hosts)), make(map[string]int)
	for node, host := range hosts {
		names[node] = mpiNodeName(host, seen[host])
		seen[host]++
	}
	return names
}
