// Command genproto generates the Go code of .proto files, in the same folders. It does not need
// protoc: tools/go.mod pins the compiler and the generator, like the other tools.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/bufbuild/protocompile"
	"github.com/bufbuild/protocompile/protoutil"
	"google.golang.org/protobuf/cmd/protoc-gen-go/internal_gengo"
	"google.golang.org/protobuf/compiler/protogen"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
)

func main() {
	for _, path := range os.Args[1:] {
		if err := generate(context.Background(), path); err != nil {
			fmt.Fprintln(os.Stderr, "genproto:", err)
			os.Exit(1)
		}
	}
}

// generate writes NAME.pb.go for NAME.proto, which must have no imports, into the same folder.
func generate(ctx context.Context, path string) error {
	dir, name := filepath.Split(path)
	compiler := protocompile.Compiler{
		Resolver:       &protocompile.SourceResolver{ImportPaths: []string{dir}},
		SourceInfoMode: protocompile.SourceInfoStandard, // includes comments
	}
	files, err := compiler.Compile(ctx, name)
	if err != nil {
		return err
	}
	gen, err := protogen.Options{}.New(&pluginpb.CodeGeneratorRequest{
		FileToGenerate: []string{name},
		Parameter:      proto.String("paths=source_relative"),
		ProtoFile:      []*descriptorpb.FileDescriptorProto{protoutil.ProtoFromFileDescriptor(files[0])},
	})
	if err != nil {
		return err
	}
	internal_gengo.GenerateFile(gen, gen.FilesByPath[name])
	response := gen.Response()
	if response.Error != nil {
		return fmt.Errorf("%s: %s", path, response.GetError())
	}
	for _, file := range response.GetFile() {
		if err := os.WriteFile(filepath.Join(dir, file.GetName()), []byte(file.GetContent()), 0o644); err != nil {
			return err
		}
	}
	return nil
}
