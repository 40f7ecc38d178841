//go:build !linux || !cgo

package gpu

// openLibrary returns nil: NVML can't be asked without cgo.
func openLibrary(string) library { return nil }

// whyNotLoaded has nothing to add.
func whyNotLoaded(string) string { return "" }
