package service

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/process"
)

// listeningInterval is the time after which a service that is not ready is searched for the ports on
// which it does listen, and the interval between two such searches.
const listeningInterval = 5 * time.Second

// withListeningPorts returns the probe of a service. If the service listens on other ports than that
// of the probe, its error also names them: a probe of the wrong port would fail for ever.
func withListeningPorts(service *framework.Service, child process.Handle) func(context.Context) error {
	if service.ReadyPort == 0 {
		return service.CheckReady
	}
	next, clause := time.Now().Add(listeningInterval), ""
	return func(ctx context.Context) error {
		err := service.CheckReady(ctx)
		if err == nil {
			return nil
		}
		if time.Now().After(next) {
			ports, _ := health.ListeningPorts(child.OwnsProcess) // without an answer there is no clause
			next, clause = time.Now().Add(listeningInterval), describeListening(ports, service.ReadyPort)
		}
		if clause == "" {
			return err
		}
		return fmt.Errorf("%w; %s", err, clause)
	}
}

// describeListening returns a clause about the ports on which a service listens, or an empty string
// if it listens on none, or on the expected one.
func describeListening(ports []int, expected int) string {
	if len(ports) == 0 || slices.Contains(ports, expected) {
		return ""
	}
	return fmt.Sprintf("its processes listen on %s %s instead", textutil.PluralForm(len(ports), "port"),
		textutil.FormatRanges(ports))
}
