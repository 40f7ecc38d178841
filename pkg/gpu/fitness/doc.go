// Package fitness evaluates the facts of a node's GPUs for a job: which GPUs belong to the job,
// whether they are fit for use, and by which attributes nodes are compared. It only works on data:
// it does not call a driver and reads no files.
package fitness
