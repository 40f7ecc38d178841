"""Submits a job to the Ray of a run, and waits for it: bringupd --framework=ray
--ray-head-args=--include-dashboard=true -- python ray_job.py [FLAGS OF ray job submit] -- COMMAND

TERM stops the job: its command gets TERM, and KILL after RAY_JOB_STOP_WAIT_TIME_S (3 s by default),
which Ray reads from the environment of bringupd. The exit code is the command's, 143 after TERM."""
import os
import signal
import subprocess
import sys
import time

from ray.job_submission import JobStatus, JobSubmissionClient

stopping = False


def stop(*_):
    global stopping
    stopping = True


for number in signal.SIGTERM, signal.SIGINT:
    signal.signal(number, stop)
job = f"bringupd-{os.environ['BRINGUPD_RUN']}-{os.getpid()}"
client = JobSubmissionClient()
# In a session of its own the signal does not reach the command that shows the job's output.
submit = subprocess.Popen(["ray", "job", "submit", "--submission-id", job, *sys.argv[1:]], start_new_session=True)
stopped = False
while submit.poll() is None:
    if stopping and not stopped:
        try:
            stopped = client.stop_job(job)
        except RuntimeError:
            pass  # it does not exist yet
    time.sleep(0.2)
if submit.returncode == 2:
    sys.exit(2)  # the flags are wrong
info = client.get_job_info(job)
sys.exit(143 if info.status == JobStatus.STOPPED else info.driver_exit_code or submit.returncode)
