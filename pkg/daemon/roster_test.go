package daemon

import (
	"strconv"
	"testing"

	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/signal"
)

// What was excused stands in the verdict once, however many fail after it.
func TestExcusedFailuresAreToldOnce(t *testing.T) {
	cfg := Config{Team: Bounds{Min: 3, Max: 3}}
	cfg.Identity.Size = 8
	r := newRoster(cfg)
	var told []int
	for rank := 1; rank < cfg.Identity.Size; rank++ {
		seen := health.Observed{FailedRecord: signal.FailedRecord{
			Header: signal.Header{Rank: rank}, Kind: string(health.Setup), What: "it is ill",
		}}
		goesOn, _ := r.excuse(seen, strconv.Itoa)
		if want := cfg.Identity.Size-rank >= cfg.Team.Min; goesOn != want {
			t.Fatalf("without rank %d it goes on: %v", rank, goesOn)
		}
		if goesOn {
			continue
		}
		for _, excused := range r.takeExcused() {
			told = append(told, excused.Rank)
		}
	}
	if len(told) != cfg.Identity.Size-cfg.Team.Min {
		t.Errorf("told of %v", told)
	}
}
