package doctor

import (
	"context"
	"slices"
	"strings"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/mpi"
	"github.com/bringupd/bringupd/pkg/pause"
	"github.com/bringupd/bringupd/pkg/pmi/pmix"
)

// MPI describes the MPI library that the driver would load on the node, and the PMI server for it.
type MPI struct {
	mpi.Linked
	Unknown     string `json:"unknown,omitempty"` // reason if the MPI is unknown
	PMIx        string `json:"pmix,omitempty"`    // libpmix that would serve the MPI ranks
	PMIxVersion string `json:"pmix_version,omitempty"`
	NoPMIx      string `json:"no_pmix,omitempty"` // reason if there is no libpmix
}

// mpi finds the driver's MPI library. It returns nil if there is no driver.
func (d *doctor) mpi(ctx context.Context) *MPI {
	if len(d.Driver) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, lookTime, errLook)
	defer cancel()
	m, err := pause.Bounded(ctx, 0, func() (*MPI, error) { return look(ctx, d.Driver, d.PMIx, d.Environ), nil })
	if err != nil {
		return &MPI{Unknown: "cannot tell which MPI the driver has: " + errLook.Error()}
	}
	return m
}

// look finds the MPI library of the driver, and the libpmix that would serve it. wanted is the
// value of --pmix.
func look(ctx context.Context, driver []string, wanted string, environ []string) *MPI {
	var m MPI
	var err error
	m.Linked, err = mpi.Of(ctx, driver, environ)
	m.Unknown = words(err)
	if wanted == pmix.Off {
		m.NoPMIx = mpi.Off
		return &m
	}
	library, err := pmix.Find(wanted, driver[0], environ)
	m.PMIx, m.NoPMIx = library.Path, words(err)
	m.PMIxVersion = mpi.PMIxVersion(library.Path)
	return &m
}

// judgeMPI checks whether MPI ranks that the driver starts could connect to each other.
func judgeMPI(p *page) {
	m := p.node.MPI
	switch {
	case m == nil: // there is no driver
	case m.Unknown != "":
		p.Skip(m.Unknown)
	case m.Missing != "":
		p.Fail(check.User, m.String(), "an MPI that the linker finds", "load its module before "+p.Identity.Launcher.Starter()+", or set LD_LIBRARY_PATH")
	case m.MPI == nil:
		p.Skip(m.String())
	case slices.Equal(m.MPI.PMI, []string{mpi.PMIx}) && m.NoPMIx != "":
		p.Fail(check.User, m.String()+", which speaks PMIx alone: "+m.NoPMIx, "a libpmix to serve it by",
			"install Debian's libpmix2 or Fedora's pmix, load a module that has it, or name it by --pmix; ranks come up alone without")
	default:
		p.Pass(m.String() + m.served())
	}
}

// served describes the PMI server of the MPI ranks and the networks that the MPI supports.
func (m *MPI) served() string {
	by := "; it speaks PMI-1"
	switch {
	case m.MPI.PMI[0] == mpi.PMIx:
		by = strings.TrimSpace("; PMIx is served by " + m.PMIx + " " + m.PMIxVersion)
	case m.MPI.PMILibrary != "":
		by = "; it speaks PMI by " + m.MPI.PMILibrary
	}
	if len(m.MPI.Fabrics) > 0 {
		by += "; it has " + strings.Join(m.MPI.Fabrics, " and ")
	}
	return by
}

// judgeMPIs compares the MPI libraries of the nodes.
func judgeMPIs(p *page) {
	kinds, by := p.by(func(f Facts) string {
		if f.MPI == nil || f.MPI.MPI == nil {
			return ""
		}
		return f.MPI.MPI.String()
	})
	if len(kinds) < 2 {
		return
	}
	slices.SortStableFunc(kinds, func(a, b string) int { return len(by[b]) - len(by[a]) })
	var parts []string
	var odd []int
	for i, kind := range kinds {
		parts = append(parts, kind+" on "+p.hosts(by[kind]))
		if i > 0 {
			odd = append(odd, by[kind]...)
		}
	}
	slices.Sort(odd)
	p.Fail(check.User, strings.Join(parts, "; "), "one MPI", "have all nodes use one environment, on the share or in one container image").Ranks = odd
}
