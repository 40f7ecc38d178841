//go:build !linux || !cgo

package cuda

// queryDriver sets f.Init to NO_CGO, because a library cannot be called without cgo.
func queryDriver(f *Facts) { f.Init = newResult(NoCgo) }
