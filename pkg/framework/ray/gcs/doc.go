// Package gcs has the messages of Ray's GCS, generated from gcs.proto.
package gcs
