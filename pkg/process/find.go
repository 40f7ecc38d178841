package process

// Find tells whether a child with this program and environment could be
// started: its errors are those of Start.
func Find(argv0 string, env []string) error {
	_, err := findProgram(argv0, "", env)
	return err
}
