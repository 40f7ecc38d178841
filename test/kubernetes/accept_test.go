// Package kubernetes checks that Kubernetes accepts the files of deploy/kubernetes and that its Job
// controller reacts to bringupd's exit codes as intended. It uses the code of the API server and of
// the controller, in the version that go.mod pins, without a cluster. It is a separate module, so
// that the product does not depend on that code.
package kubernetes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/batch"
	_ "k8s.io/kubernetes/pkg/apis/batch/install"
	"k8s.io/kubernetes/pkg/apis/core"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	registry "k8s.io/kubernetes/pkg/registry/batch/job"
	"k8s.io/kubernetes/pkg/registry/core/service"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	"sigs.k8s.io/yaml"
)

const folder = "../../deploy/kubernetes"

// strict rejects unknown and duplicate fields.
var strict = serializer.NewCodecFactory(legacyscheme.Scheme, serializer.EnableStrict)

// accept checks the objects of a file as an API server would, and returns the Jobs among them as
// they would be stored. For a JobSet it returns the Job that it would create.
func accept(text []byte) ([]*batch.Job, error) {
	var jobs []*batch.Job
	documents := utilyaml.NewDocumentDecoder(io.NopCloser(bytes.NewReader(text)))
	for buffer := make([]byte, 1<<20); ; {
		n, err := documents.Read(buffer)
		if errors.Is(err, io.EOF) {
			return jobs, nil
		}
		if err != nil {
			return nil, err
		}
		document := bytes.TrimSpace(buffer[:n])
		if bytes.Contains(document, []byte("kind: JobSet\n")) {
			if document, err = acceptJobSet(document); err != nil {
				return nil, err
			}
		}
		object, err := acceptObject(document)
		if err != nil {
			return nil, err
		}
		if job, ok := object.(*batch.Job); ok {
			jobs = append(jobs, job)
		}
	}
}

// acceptObject reads, defaults and validates a Job or a Service.
func acceptObject(document []byte) (runtime.Object, error) {
	object, err := runtime.Decode(
		strict.UniversalDecoder(batch.SchemeGroupVersion, core.SchemeGroupVersion), document)
	if err != nil {
		return nil, err
	}
	var strategy rest.RESTCreateStrategy
	var meta *metav1.ObjectMeta
	var group, resource string
	switch object := object.(type) {
	case *batch.Job:
		strategy, meta, group, resource = registry.Strategy, &object.ObjectMeta, "batch", "jobs"
	case *core.Service:
		strategy, meta, group, resource = service.Strategy, &object.ObjectMeta, "", "services"
		// The server sets ClusterIPs before it validates: see normalizeClusterIPs in its storage.go.
		object.Spec.ClusterIPs = []string{object.Spec.ClusterIP}
	default:
		return nil, fmt.Errorf("cannot judge a %T: only a Job, a Service or a JobSet", object)
	}
	ctx := request.WithNamespace(context.Background(), metav1.NamespaceDefault)
	ctx = request.WithRequestInfo(ctx,
		&request.RequestInfo{APIGroup: group, APIVersion: "v1", Resource: resource})
	meta.Namespace = metav1.NamespaceDefault
	rest.FillObjectMetaSystemFields(meta)
	if err := rest.BeforeCreate(strategy, ctx, object); err != nil {
		return nil, err
	}
	if warnings := strategy.WarningsOnCreate(ctx, object); len(warnings) > 0 {
		return nil, fmt.Errorf("accepted with a warning: %s", strings.Join(warnings, "; "))
	}
	return object, nil
}

// acceptJobSet validates a JobSet against its published schema, and returns the Job that it would
// create.
func acceptJobSet(document []byte) ([]byte, error) {
	published, err := jobSetSchema()
	if err != nil {
		return nil, err
	}
	structural, err := schema.NewStructural(published)
	if err != nil {
		return nil, err
	}
	validator, _, err := validation.NewSchemaValidator(published)
	if err != nil {
		return nil, err
	}
	object := &unstructured.Unstructured{}
	if err := yaml.UnmarshalStrict(document, &object.Object); err != nil {
		return nil, err
	}
	// Reject unknown fields, as the API server does in strict mode, which kubectl requests.
	unknown := pruning.PruneWithOptions(object.Object, structural, true,
		schema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})
	if len(unknown) > 0 {
		return nil, fmt.Errorf("unknown fields: %s", strings.Join(unknown, ", "))
	}
	if errs := validation.ValidateCustomResource(nil, object.Object, validator); len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	var set jobset.JobSet
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object,
		&set, true); err != nil {
		return nil, err
	}
	if n := len(set.Spec.ReplicatedJobs); n != 1 {
		return nil, fmt.Errorf("cannot judge a JobSet of %d Jobs: only of one", n)
	}
	replicated := set.Spec.ReplicatedJobs[0]
	return yaml.Marshal(map[string]any{
		"apiVersion": "batch/v1", "kind": "Job", "spec": replicated.Template.Spec,
		"metadata": map[string]any{"name": set.Name + "-" + replicated.Name + "-0"},
	})
}

// jobSetSchema returns the schema of JobSets in the version that go.mod pins.
func jobSetSchema() (*apiextensions.JSONSchemaProps, error) {
	at, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/jobset").Output()
	if err != nil {
		return nil, fmt.Errorf("cannot find the module of JobSet: %w", err)
	}
	text, err := os.ReadFile(
		filepath.Join(strings.TrimSpace(string(at)),
			"config/components/crd/bases/jobset.x-k8s.io_jobsets.yaml"))
	if err != nil {
		return nil, err
	}
	var definition apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(text, &definition); err != nil {
		return nil, err
	}
	for _, version := range definition.Spec.Versions {
		if version.Name == jobset.GroupVersion.Version {
			var published apiextensions.JSONSchemaProps
			err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(
				version.Schema.OpenAPIV3Schema, &published, nil)
			return &published, err
		}
	}
	return nil, fmt.Errorf("cannot find %s in the schema of JobSet",
		runtimeschema.GroupVersion(jobset.GroupVersion))
}
