-- Tests of storage are kept with the tests of GPUs: JSON with the folder and the dataset that are tested; NULL for tests of GPUs. Their level is
-- empty, and `uuids` has the id of the file system.
ALTER TABLE diagnostics ADD COLUMN storage TEXT;
