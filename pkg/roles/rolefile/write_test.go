package rolefile

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/bringupd/bringupd/pkg/roles"
)

// checkFormat fails the test if the text of a file has other roles or spares than the file.
func checkFormat(t *testing.T, file File) {
	t.Helper()
	text, err := file.Format()
	if err != nil {
		t.Fatal(err)
	}
	again, err := parseFile([]byte(text))
	same := []cmp.Option{
		cmpopts.IgnoreFields(roles.Definition{}, "Line"), cmpopts.EquateEmpty(),
		cmpopts.IgnoreMapEntries(func(_, spares int) bool { return spares == 0 }),
	}
	if diff := cmp.Diff(file, again, same...); err != nil || diff != "" {
		t.Errorf("got %v\n%s\nfrom:\n%s", err, diff, text)
	}
	if next, _ := again.Format(); next != text {
		t.Errorf("%sbecame:\n%s", text, next)
	}
}

func TestFormatEveryKey(t *testing.T) {
	file, err := parseFile([]byte("spares: {0: 1, 2: 3}" + everyKey))
	if err != nil {
		t.Fatal(err)
	}
	checkFormat(t, file)
	_, err = File{Roles: []roles.Definition{{Name: "a", Program: roles.Program{Command: "\xff"}}}}.Format()
	if err == nil {
		t.Error("a text that is not UTF-8 is written")
	}
}
