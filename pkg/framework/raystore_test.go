package framework

import "testing"

func TestObjectStore(t *testing.T) {
	for _, tc := range []struct {
		name string
		ray  Ray
		want int64
	}{
		{"left to Ray", Ray{}, 0},
		{"the workers'", Ray{WorkerArgs: []string{"--object-store-memory=1000"}}, 1000},
		{"in two words", Ray{HeadArgs: []string{"--object-store-memory", "2000"}}, 2000},
		{"the larger", Ray{HeadArgs: []string{"--object-store-memory=1"}, WorkerArgs: []string{"--object-store-memory=3000"}}, 3000},
		{"no number", Ray{WorkerArgs: []string{"--object-store-memory=much"}}, 0},
		{"no flags", Ray{WorkerArgs: []string{"much"}}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := tc.ray.ObjectStore(); got != tc.want {
				t.Errorf("got %d, want %d", got, tc.want)
			}
		})
	}
}
