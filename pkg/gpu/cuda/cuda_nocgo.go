//go:build !linux || !cgo

package cuda

// ask sets f.Init to NO_CGO, because a library cannot be called without cgo.
func ask(f *Facts) { f.Init = ours(NoCgo) }
