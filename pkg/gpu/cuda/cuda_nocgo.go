//go:build !linux || !cgo

package cuda

// ask needs cgo to call a library.
func ask(f *Facts) { f.Init = ours(NoCgo) }

// work needs it, too.
func work(_ string, _ windows, l *ledger) { l.worked.Init = ours(NoCgo) }
