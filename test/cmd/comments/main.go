// Command comments reports comments of the Go files in and below the directories that are its
// arguments that name something which does not exist, and doc comments of functions that do not
// begin with the function's name. It exits with 1 if there are any.
package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// identifier matches a word that can only be the name of something in the code: it has a capital
// letter after a small one, or a package in front.
var identifier = regexp.MustCompile(`\b[a-z]\w*\.[A-Z]\w*\b|\b[A-Za-z]*[a-z][A-Z]\w*\b`)

// foreign matches names of products, and of settings and functions of other programs.
var foreign = regexp.MustCompile(`^(nvml|cuda|nccl)[A-Z]|^(Open(MPI|PMIx|PBS|SSH|SSL|SHMEM|Telemetry)|` +
	`vLLM|NeMo|PyTorch|TensorPipe|DeepSpeed|` +
	`ConnectX|InfiniBand|MooseFS|BeeGFS|DevTools|AgentBaker|ChaCha20|RoCE|MoM|mW|gN|` +
	`JobSets?|KillOnBadExit|SignalChildrenProcesses|UnkillableStepTimeout|WaitTime|cleanPodPolicy|` +
	`normalizeClusterIPs)$`)

func main() {
	files := token.NewFileSet()
	var all []*ast.File
	names := make(map[string]bool)
	for _, dir := range os.Args[1:] {
		err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") {
				return err
			}
			file, err := parser.ParseFile(files, path, nil, parser.ParseComments|parser.SkipObjectResolution)
			if err == nil {
				all = append(all, file)
				collect(file, names)
			}
			return err
		})
		if err != nil {
			fmt.Fprintln(os.Stderr, "comments:", err)
			os.Exit(2)
		}
	}
	code := 0
	for _, file := range all {
		for _, bad := range check(file, names) {
			fmt.Printf("%s: %s\n", files.Position(bad.at), bad.text)
			code = 1
		}
	}
	os.Exit(code)
}

// collect adds the names that a file uses or declares, and the words of its strings.
func collect(file *ast.File, names map[string]bool) {
	ast.Inspect(file, func(node ast.Node) bool {
		switch n := node.(type) {
		case *ast.Ident:
			names[n.Name] = true
		case *ast.BasicLit:
			for _, word := range identifier.FindAllString(n.Value, -1) {
				names[word] = true
			}
		}
		return true
	})
}

// finding is something that is wrong with a comment.
type finding struct {
	at   token.Pos
	text string
}

// check returns what is wrong with the comments of a file, if it is not generated.
func check(file *ast.File, names map[string]bool) (all []finding) {
	if ast.IsGenerated(file) {
		return nil
	}
	for _, group := range file.Comments {
		for _, word := range identifier.FindAllString(group.Text(), -1) {
			_, name, isQualified := strings.Cut(word, ".")
			isKnown := names[word] || isQualified && names[name]
			if !isKnown && !foreign.MatchString(word) {
				all = append(all, finding{group.Pos(), "there is no " + word})
			}
		}
	}
	for _, declared := range file.Decls {
		function, is := declared.(*ast.FuncDecl)
		if !is || function.Doc == nil || function.Name.Name == "init" {
			continue
		}
		first, _, _ := strings.Cut(function.Doc.Text(), " ")
		if strings.TrimRight(first, ",:\n") != function.Name.Name && first != "Deprecated:" {
			all = append(all, finding{function.Pos(), "the comment of " + function.Name.Name + " begins with " + first})
		}
	}
	return all
}
