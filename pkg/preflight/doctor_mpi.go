package preflight

import (
	"context"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/ranks/mpidetect"
	"github.com/bringupd/bringupd/pkg/ranks/pmi/pmix"
)

// DriverMPI describes the MPI library that the driver would load on the node, and the PMI server
// for it.
type DriverMPI struct {
	mpidetect.LinkedMPI
	UnknownReason string `json:"unknown,omitempty"` // reason if the MPI is unknown
	PMIx          string `json:"pmix,omitempty"`    // libpmix that would serve the MPI ranks
	NoPMIxReason  string `json:"no_pmix,omitempty"` // reason if there is no libpmix
}

// detectMPI finds the driver's MPI library, and the libpmix that would serve it. It returns nil if
// there is no driver.
func (d *examiner) detectMPI(ctx context.Context) *DriverMPI {
	if len(d.Driver) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, collectTimeout, errCollectTimeout)
	defer cancel()
	m, err := ctxutil.CallBounded(ctx, 0, func() (*DriverMPI, error) {
		linked, err := mpidetect.DetectLinked(ctx, d.Driver, d.Environ)
		m := &DriverMPI{LinkedMPI: linked, UnknownReason: errorText(err)}
		m.NoPMIxReason = mpidetect.PMIxDisabled
		if d.PMIx != pmix.Off {
			library, err := pmix.FindLibrary(d.PMIx, d.Driver[0], d.Environ)
			m.PMIx, m.NoPMIxReason = library.Path, errorText(err)
		}
		return m, nil
	})
	if err != nil {
		reason := "cannot detect the driver's MPI: " + errCollectTimeout.Error()
		return &DriverMPI{UnknownReason: reason}
	}
	return m
}

// checkMPI checks whether MPI ranks that the driver starts could connect to each other.
func checkMPI(p *checkContext) {
	m := p.nodeFacts.MPI
	switch {
	case m == nil: // there is no driver
	case m.UnknownReason != "":
		p.AddSkip(m.UnknownReason)
	case m.Missing != "":
		p.AddFailure(check.ClassUser, m.String(), "an MPI library that the dynamic linker finds",
			"load its module before "+p.Identity.Launcher.StarterProgram()+", or set LD_LIBRARY_PATH")
	case m.MPI == nil:
		p.AddSkip(m.String())
	case m.MPI.NeedsPMIx() && m.NoPMIxReason != "":
		p.AddFailure(check.ClassUser, m.String()+", which supports only PMIx: "+m.NoPMIxReason,
			"a libpmix for bringupd's PMIx server", "install libpmix2 (Debian) or pmix (Fedora), "+
				"load a module with it, or give its path with --pmix; without it, each rank starts as a "+
				"world of its own")
	case m.MPI.NeedsPMIx():
		p.AddPass(m.String() + "; PMIx server library: " + m.PMIx)
	default:
		p.AddPass(m.String() + "; it uses PMI-1")
	}
}

// mpiLibrary describes the MPI library of the node, or returns an empty string.
func (f DoctorFacts) mpiLibrary() string {
	if f.MPI == nil || f.MPI.MPI == nil {
		return ""
	}
	return f.MPI.MPI.String()
}
