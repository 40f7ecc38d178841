package mpidetect

import "testing"

// BenchmarkWithoutPMIx measures the examination of a program without an MPI. Each daemon of a world
// makes it while its job starts.
func BenchmarkWithoutPMIx(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if WithoutPMIx(b.Context(), []string{"true"}, []string{"PATH=/usr/bin:/bin"}) == "" {
			b.Fatal("the program may use PMIx")
		}
	}
}
