//go:build !linux || !cgo

package cuda

// ask needs cgo to call a library.
func ask(f *Facts) { f.Init = ours(NoCgo) }
