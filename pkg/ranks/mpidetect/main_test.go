package mpidetect

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// C symbols that only one MPI has.
const (
	openmpi = `int ompi_mpi_comm_self; const char ompi_version_string[] = "5.0.11";`
	mpich   = `const char *const text[] = {"MPICH Version: %s", "0.13.99", "5.0.2"};` + useText
	intel   = `void I_MPI_Check_image_status(void) {}
const char *const text[] = {"MPICH Version", "2021.18.1"};` + useText
	useText = ` int use(int i) { return text[i][0]; }`
)

// compiled compiles C to a library, or to a program if the name has no .so; args are additional
// compiler arguments.
func compiled(t *testing.T, file, source string, args ...string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	base := filepath.Base(file)
	all := []string{"-x", "c", "-", "-x", "none", "-O0", "-Wl,--no-as-needed", "-o", file}
	if strings.Contains(base, ".so") {
		all = append(all, "-shared", "-fPIC", "-Wl,-soname,"+base)
	}
	gcc := exec.Command("gcc", append(all, args...)...)
	gcc.Stdin = strings.NewReader(source)
	if said, err := gcc.CombinedOutput(); err != nil {
		t.Fatalf("cannot compile %s: %v\n%s", file, err, said)
	}
	return file
}

func write(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}
