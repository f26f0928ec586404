INSERT INTO snib_fence (name, token, owner) VALUES (:name, :token, :owner)
ON DUPLICATE KEY UPDATE
    owner = IF(token < VALUES(token), VALUES(owner), owner),
    token = GREATEST(token, VALUES(token))
