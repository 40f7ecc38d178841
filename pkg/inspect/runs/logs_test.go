package runs

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/bringupd/bringupd/pkg/signal"
)

// TestWantedBy verifies which logs a word selects, by their names.
func TestWantedBy(t *testing.T) {
	names := strings.Fields(
		"driver.log head.log daemon-0000.log worker-0000.log worker-0001.log rank-0000.log rank-0001.log " +
			"rank-0001.g1.log")
	for _, tc := range []struct {
		word string
		want []string
	}{
		{"driver", names[:1]},
		{"head", names[1:4]},
		{"n0", names[1:4]},
		{"n1", names[4:5]},
		{"ranks", names[5:]},
		{"rank-1", names[6:]},
		{"rank1", names[6:]},
	} {
		t.Run(tc.word, func(t *testing.T) {
			node := func(_ context.Context, name string) (int, error) {
				return strconv.Atoi(strings.TrimPrefix(name, "n"))
			}
			wanted, err := SelectLogs(t.Context(), nil, nil, tc.word, node)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, name := range names {
				if _, rank, ok := signal.ParseLogName(name); ok && wanted(name, rank) {
					got = append(got, name)
				}
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("it means %v, want %v", got, tc.want)
			}
		})
	}
}
